//go:build e2e && linux

package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup/remote"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long to soak; 0 does not")
	soakSeed = flag.Uint64("soak.seed", 0, "selects the kills and jobs; 0 draws one")
)

const (
	jobTime    = 5 * time.Minute // for which a job may run, through kills
	sampleTime = 10 * time.Second
	lanes      = 2 // jobs at a time
)

// TestSoak is what doc.go says.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("only with -soak 10m, say: see make soak")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d: -soak.seed %[1]d draws the same kills and jobs", seed)
	c := startCluster(t, 2, 3)
	s := &soak{
		testCluster: c, beats: c.listen(), random: rand.New(rand.NewPCG(seed, 0)), began: time.Now(),
		still: map[*process]time.Time{}, of: map[string]*series{}, limits: map[string]growth{},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	text := writeText(t, seed)
	var running sync.WaitGroup
	for i := range lanes {
		l := &lane{s: s, random: rand.New(rand.NewPCG(seed, uint64(1+i))), text: text, number: i}
		running.Go(func() { l.run(ctx) })
	}
	s.hurt()
	stop() // the jobs under way are the last ones
	running.Wait()
	s.report()
	s.nothingLeft()
}

// soak is what goes on in the meantime. What is not under mu belongs to the goroutine of the test.
type soak struct {
	*testCluster
	beats  *beats
	random *rand.Rand
	began  time.Time

	still  map[*process]time.Time // stopped, until then
	kills  int
	stops  int
	of     map[string]*series
	limits map[string]growth
	names  []string // of both, in the order of their first measurement

	mu       sync.Mutex
	done     int
	verified int
	failures uint64 // of workers
	faults   []error
}

// hurt kills and measures until the time is up, and leaves everything running.
func (s *soak) hurt() {
	interval := min(sampleTime, *soakFor/40)
	next, sample := time.Duration(0), interval
	for {
		now := time.Since(s.began)
		over := now >= *soakFor || s.failed()
		for p, until := range s.still {
			if time.Now().After(until) || over {
				p.Continue()
				delete(s.still, p)
			}
		}
		switch {
		case over:
			return
		case now >= sample:
			s.sample(now)
			sample += interval
		case now >= next:
			s.strike(now < *soakFor/4)
			next = now + 3*time.Second + time.Duration(s.random.Int64N(int64(5*time.Second)))
		}
		time.Sleep(50 * time.Millisecond) // the time is that of real processes
	}
}

func (s *soak) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults) > 0
}

// strike kills one process and starts it again. Later those of index 0, and the backup server, are stopped for a while
// instead: others may take over what they did.
func (s *soak) strike(early bool) {
	var p *process
	spared := false
	switch kind := s.random.IntN(10); {
	case kind == 0:
		p, spared = s.backup, true
	case kind == 1:
		i := s.random.IntN(len(s.controllers))
		p, spared = s.controllers[i], i == 0
	default:
		i := s.random.IntN(len(s.nodes))
		p, spared = s.nodes[i], i == 0
	}
	duration := 500*time.Millisecond + time.Duration(s.random.Int64N(int64(4*time.Second)))
	if _, is := s.still[p]; is {
		return
	}
	if spared && !early {
		p.Stop()
		s.still[p] = time.Now().Add(duration)
		s.stops++
		return
	}
	p.Kill()
	p.start()
	s.kills++
}

// sample measures all, and prints a line.
func (s *soak) sample(now time.Duration) {
	var line []string
	processes := append([]*process{{Process: s.nats.Process, name: "nats"}, s.backup}, s.controllers...)
	for _, p := range append(processes, s.nodes...) {
		x := take(p.PID())
		size := memory
		if p == s.controllers[1] || slices.Index(s.nodes, p) > 0 {
			size = anything // it follows from when it was killed last
		}
		s.add("memory of "+p.name, size, x.memory)
		s.add("threads of "+p.name, few, x.threads)
		s.add("open files of "+p.name, few, x.files)
		text := fmt.Sprintf("%s %dM/%d/%d", p.name, x.memory>>20, x.threads, x.files)
		if n := s.beats.count(p.name); n > 0 {
			s.add("goroutines of "+p.name, many, n)
			text += fmt.Sprint("/", n)
		}
		line = append(line, text)
	}
	records, backups := int(onDisk(s.nats.Store())), int(onDisk(s.store))
	s.add("disk of nats", disk, records)
	s.add("disk of backup", disk, backups)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("%6v  %s  disk %.1fM/%.1fM  jobs %d (%d verified, %d failures of workers)  kills %d stops %d", now.Round(time.Second),
		strings.Join(line, " "), float64(records)/(1<<20), float64(backups)/(1<<20), s.done, s.verified, s.failures, s.kills, s.stops)
}

func (s *soak) add(name string, limit growth, value int) {
	if s.of[name] == nil {
		s.of[name] = &series{}
		s.limits[name] = limit
		s.names = append(s.names, name)
	}
	*s.of[name] = append(*s.of[name], float64(value))
}

// report says what has grown, and which jobs went wrong.
func (s *soak) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names {
		second, last := s.of[name].quarters()
		unit, by := "", 1.0
		if limit := s.limits[name]; limit == memory || limit == disk || limit == anything {
			unit, by = " MiB", 1<<20
		}
		s.t.Logf("%-24s median %6.1f%s in the second quarter, %6.1f%[3]s in the last", name, second/by, unit, last/by)
		if err := s.limits[name].check(*s.of[name]); err != nil {
			s.t.Errorf("%s %v", name, err)
		}
	}
	for _, err := range s.faults {
		s.t.Error(err)
	}
	s.t.Logf("%d jobs, %d of them verified, lived through %d kills and %d stops: %d failures of workers", s.done, s.verified, s.kills, s.stops, s.failures)
}

// nothingLeft looks for what jobs that were deleted have left behind.
func (s *soak) nothingLeft() {
	if s.t.Failed() {
		return // jobs may be there
	}
	records, err := s.fabric.List(s.t.Context(), "")
	require.NoError(s.t, err)
	for _, r := range records {
		if r.Key != "leader" && !strings.HasPrefix(r.Key, "node.") {
			s.t.Errorf("a record is left: %s", r.Key)
		}
	}
	client, err := remote.Open(s.t.Context(), s.nc, remote.ClientOptions{Cluster: "afstream", Server: remote.DefaultName})
	require.NoError(s.t, err)
	defer client.Close()
	keys := 0
	require.NoError(s.t, client.Scan(nil, func(key, value []byte) error {
		if keys++; keys <= 10 {
			s.t.Errorf("a key of %d bytes is left in the backup server: %q", len(value), key)
		}
		return nil
	}))
	s.t.Logf("%d records and %d keys of backups are left", len(records), keys)
}

// writeText writes a text of some length to count the words of.
func writeText(t *testing.T, seed uint64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 99))
	zipf := rand.NewZipf(random, 1.2, 1, 20_000)
	var b strings.Builder
	for b.Len() < 6<<20 {
		fmt.Fprintf(&b, "w%d", zipf.Uint64())
		if random.IntN(12) == 0 {
			b.WriteString(".\n")
		} else {
			b.WriteByte(' ')
		}
	}
	path := filepath.Join(t.TempDir(), "text.txt")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// lane runs one job after the other.
type lane struct {
	s      *soak
	random *rand.Rand
	text   string
	number int
	jobs   int
}

// run ends when ctx has, with a job that it goes through to the end, or with the first fault.
func (l *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		id := fmt.Sprintf("lane%d-%d", l.number, l.jobs)
		l.jobs++
		failures, verified, err := l.job(id)
		l.s.mu.Lock()
		if err != nil {
			l.s.faults = append(l.s.faults, fmt.Errorf("job %s: %w", id, err))
		} else {
			l.s.done++
			l.s.failures += failures
			if verified {
				l.s.verified++
			}
		}
		l.s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// kinds are the jobs that run. They are short, since a job that meets a failure every few seconds has soon spent its budget, and then
// backs up every change.
func (l *lane) kinds() [][]string {
	return [][]string{
		{"heavy-hitter", "--items", "10000000", "--keys", "50000"},
		{"heavy-hitter", "--items", "3000000", "--guarantee", "upstream-backup"},
		{"wordcount", "--input", l.text},
		{"wordcount", "--input", l.text, "--guarantee", "error-free"},
		{"aggregate", "--items", "3000000", "--keys", "20000", "--zipf", "1"},
		{"distinct", "--items", "10000000", "--keys", "1000000"},
		{"sample", "--items", "10000000"},
	}
}

// job runs a job from its submission to when it is deleted.
func (l *lane) job(id string) (failures uint64, verified bool, err error) {
	ctx, stop := context.WithTimeout(context.Background(), jobTime)
	defer stop()
	kinds := l.kinds()
	args := append([]string{"job", "submit"}, kinds[l.random.IntN(len(kinds))]...)
	if said, err := l.s.run(ctx, append(args, "--series", "telescoping", "--seed", fmt.Sprint(l.random.IntN(1000)), "--id", id, "--wait")...); err != nil {
		asking, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		seen, _ := l.s.run(asking, "job", "inspect", id)
		logs, _ := l.s.run(asking, "job", "logs", id)
		return 0, false, fmt.Errorf("%w\n%s\n%s\n%s", err, said, seen, last(logs, 4000))
	}
	result := []string{"job", "result"}
	if verified = l.jobs%4 == 0; verified {
		result = append(result, "--verify")
	}
	if err := l.insist(ctx, append(result, id)...); err != nil {
		return 0, verified, err
	}
	r, err := l.s.fabric.Get(ctx, "job."+id)
	if err != nil {
		return 0, verified, err
	}
	failures, err = failuresOf(r.Value)
	if err != nil {
		return 0, verified, err
	}
	return failures, verified, l.insist(ctx, "job", "delete", id)
}

// insist runs a command again that may have met a backup server that stands still for longer than it waits.
func (l *lane) insist(ctx context.Context, args ...string) (err error) {
	for range 5 {
		if _, err = l.s.run(ctx, args...); err == nil || !strings.Contains(err.Error(), "no answer from backup server") {
			return err
		}
	}
	return err
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }
