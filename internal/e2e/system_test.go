//go:build e2e && unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/chaos"
)

// member is a process of a cluster, with its way to NATS.
type member struct {
	*chaos.Process
	name string
	way  *chaos.Proxy // nil if it knows all servers, or has a network of its own
}

// system is a whole cluster.
type system struct {
	t           *testing.T
	draw        *rand.Rand
	servers     []*chaos.NATS
	controllers []*member
	backup      *member
	nodes       []*member
	seen        *observer
	reigns      []reign // of controllers that were killed
}

// setup says how a test's cluster differs from others.
type setup struct {
	servers int              // of NATS; 0 is 1
	users   bool             // each node is a user of its own, see users
	apart   *chaos.Namespace // of the last node; nil for none
}

// slow is what each way to or from the backup server takes until the fault has been dealt with.
const slow = 20 * time.Millisecond

func start(t *testing.T, c setup) *system {
	t.Logf("-e2e.seed %d", *seed)
	name := fnv.New64()
	_, _ = name.Write([]byte(t.Name()))
	s := &system{t: t, draw: rand.New(rand.NewPCG(*seed, name.Sum64()))}
	began := time.Now()
	host := "127.0.0.1"
	if c.apart != nil {
		host = c.apart.Host()
	}
	s.servers = chaos.StartNATSAt(t, tools, host, max(c.servers, 1))
	if c.users {
		s.servers[0].Configure(users(""))
	}
	for i := range 2 {
		s.controllers = append(s.controllers, s.member(fmt.Sprint("c", i), nil, "controller", "--log-level", "info", "--replicas", fmt.Sprint(len(s.servers))))
	}
	for _, c := range s.controllers {
		c.Await("is ready to lead")
	}
	s.backup = s.member("backup", nil, "backup", "--dir", t.TempDir())
	s.backup.way.Delay(slow)
	for i := range 3 {
		var apart *chaos.Namespace
		if i == 2 {
			apart = c.apart
		}
		s.nodes = append(s.nodes, s.member(fmt.Sprint("n", i), apart, "node", "--slots", "10", "--log-level", "info"))
	}
	s.seen = observe(t, s.urls())
	s.backup.Await("serves")
	s.seen.until("a controller leads and all nodes beat", func() bool { return s.seen.leader.Controller != "" && len(s.seen.beats) == len(s.nodes) })
	t.Logf("all runs after %v", since(began))
	return s
}

// member starts a process of the cluster. With one server its way is a proxy: clients learn of the servers of a NATS cluster, and would
// go around it.
func (s *system) member(name string, apart *chaos.Namespace, args ...string) *member {
	m := &member{name: name}
	urls := chaos.URLs(s.servers)
	if apart == nil && (len(s.servers) == 1 || name == "backup") {
		m.way = chaos.NewProxy(s.t, s.servers[0].Address())
		urls = "nats://" + name + ":x@" + m.way.Address() // the user counts only where there are users
	}
	args = append(args, "--nats", urls)
	if name != "backup" {
		args = append(args, "--name", name)
	}
	m.Process = chaos.Start(s.t, chaos.Command{Name: name, Path: tools.Afstream(s.t), Args: args, In: apart})
	return m
}

// urls is where all of NATS is found.
func (s *system) urls() string {
	return strings.ReplaceAll(chaos.URLs(s.servers), "nats://", "nats://any:x@") // as in member
}

// users has each process be a user, of whom one may not beat.
func users(silent string) string {
	var b strings.Builder
	b.WriteString("authorization {\nusers = [\n")
	for _, name := range []string{"any", "c0", "c1", "backup", "n0", "n1", "n2"} {
		deny := "nothing"
		if name == silent {
			deny = "afstream.afstream.beat.>"
		}
		fmt.Fprintf(&b, "{user: %s, password: x, permissions: {publish: {deny: [%q]}}}\n", name, deny)
	}
	b.WriteString("]\n}\n")
	return b.String()
}

// kill kills a process, and keeps what its log says of its reigns.
func (s *system) kill(m *member) {
	m.Kill()
	s.reigns = append(s.reigns, reigns(m.Output(), time.Now())...)
}

// command runs one of afstream's commands to its end.
func (s *system) command(args ...string) (stdout string) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, tools.Afstream(s.t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(cmd.Environ(), "AFSTREAM_NATS="+s.urls())
	require.NoError(s.t, cmd.Run(), "%v: %s%s", cmd.Args, &out, &errs)
	return out.String()
}

// job is one that a test submits.
type job struct {
	id    string
	args  []string
	exact bool
	from  uint64 // the fault happens when so much has been processed, and twice as much at most
	most  uint64
}

// The jobs of each test. The sizes let them run for some seconds beside each other on two cores.
func (s *system) submit() []job {
	s.t.Helper()
	jobs := []job{
		{id: "heavy", args: []string{"heavy-hitter", "--items", "5M"}, from: 20_000, most: 200_000},
		{id: "words", args: []string{"wordcount", "--input", book(s.t), "--theta", "2000"}, from: 100, most: 5_000},
		{id: "batches", args: []string{"heavy-hitter", "--items", "5M", "--guarantee", "mini-batch", "--batch", "10k"}, exact: true, from: 20_000, most: 200_000},
		{id: "exact", args: []string{"heavy-hitter", "--items", "8000", "--guarantee", "error-free"}, exact: true, from: 10, most: 150},
	}
	s.submitAll(jobs)
	return jobs
}

// submitAll submits jobs and waits until all of them are in the midst of their work.
func (s *system) submitAll(jobs []job) {
	s.t.Helper()
	for _, j := range jobs {
		s.command(append(append([]string{"job", "submit"}, j.args...), "--id", j.id)...)
	}
	for _, j := range jobs {
		at := j.from + s.draw.Uint64N(j.most-j.from)
		s.seen.until(fmt.Sprintf("job %s has processed %d items", j.id, at), func() bool { return s.seen.processed(j.id) >= at })
	}
	for _, j := range jobs {
		state := get(s.seen, func() cluster.State { return s.seen.jobs[j.id].State })
		require.Equal(s.t, cluster.Running, state, "job %s, when the fault is about to happen", j.id)
	}
}

var text struct {
	sync.Once
	path string
}

// book is a text of 5 M words, whose frequencies are like those of a language.
func book(t *testing.T) string {
	text.Do(func() {
		draw := rand.New(rand.NewPCG(1, 2))
		words := make([]string, 20_000)
		for i := range words {
			for range 2 + draw.IntN(7) {
				words[i] += string(rune('a' + draw.IntN(26)))
			}
		}
		often := rand.NewZipf(draw, 1.1, 8, uint64(len(words)-1))
		var b bytes.Buffer
		for i := range 5_000_000 {
			b.WriteString(words[often.Uint64()])
			b.WriteByte(" \n"[min(1, i%10/9)])
		}
		dir, err := tools.Dir()
		require.NoError(t, err)
		text.path = filepath.Join(dir, "book.txt")
		require.NoError(t, os.WriteFile(text.path, b.Bytes(), 0o600))
	})
	return text.path
}

// finish has backups be fast, waits for the end of all jobs, and checks their results and all that was observed.
func (s *system) finish(jobs []job) {
	s.t.Helper()
	s.backup.way.Delay(0)
	for _, j := range jobs {
		s.seen.until("job "+j.id+" ends", func() bool { return s.seen.jobs[j.id].State.Ended() })
		r := get(s.seen, func() *cluster.Job { return s.seen.jobs[j.id] })
		require.Equal(s.t, cluster.Finished, r.State, "job %s: %s", j.id, r.Why)
		s.check(j, r)
	}
	s.settle()
}

// check verifies the result of a job.
func (s *system) check(j job, r *cluster.Job) {
	s.t.Helper()
	var report struct{ Verify map[string]any }
	out := s.command("job", "result", "--verify", "-o", "json", j.id)
	require.NoError(s.t, json.Unmarshal([]byte(out), &report), out)
	require.Equal(s.t, true, report.Verify["kept"], out)
	var failures uint64
	for _, w := range r.Workers {
		failures += w.Failures
	}
	for _, what := range []string{"state_divergence", "total_divergence", "max_error", "lost_items", "duplicated_items"} {
		if got, ok := report.Verify[what].(float64); ok && j.exact {
			require.Zero(s.t, got, "%s of an exact job: %s", what, out)
		}
	}
	for _, i := range r.History {
		s.t.Logf("  %s %s/%d epoch %d on %s: %s; went on %.3f s later", i.At.Format(time.StampMilli), i.Operator, i.Worker, i.Epoch, i.Node, i.What, i.Recovery)
	}
	s.t.Logf("job %s: %v, with %d failures, off by %v of %v", j.id, r.Ended.Sub(r.Started).Round(time.Millisecond), failures,
		report.Verify["state_divergence"], report.Verify["state_divergence_bound"])
}

// settle checks all that was observed.
func (s *system) settle() {
	s.t.Helper()
	all := s.reigns
	for _, c := range s.controllers {
		if !c.Ended() {
			all = append(all, reigns(c.Output(), time.Now())...)
		}
	}
	require.NotEmpty(s.t, all)
	require.Empty(s.t, overlaps(all))
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	require.Empty(s.t, s.seen.history.faults())
	s.t.Logf("%d changes of records are in order (%d more were replaced too soon to be seen); %d reigns", len(s.seen.history.records), s.seen.history.missed(), len(all))
}

// victim is a node that has work to lose, and what that is.
func (s *system) victim() (*member, []incarnation) {
	s.t.Helper()
	for _, i := range s.draw.Perm(len(s.nodes)) {
		m := s.nodes[i]
		if lost := get(s.seen, func() []incarnation { return s.seen.on(m.name) }); len(lost) > 0 {
			return m, lost
		}
	}
	s.t.Fatal("no node has any work")
	return nil, nil
}

// leads is the controller that leads, and its term.
func (s *system) leads() (*member, uint64) {
	s.t.Helper()
	l := get(s.seen, func() cluster.Leader { return s.seen.leader })
	for _, m := range s.controllers {
		if m.name == l.Controller {
			return m, l.Term
		}
	}
	s.t.Fatalf("nobody leads: %+v", l)
	return nil, 0
}

// recovers waits until others do what a node has lost, and says how long that took.
func (s *system) recovers(from time.Time, lost []incarnation) {
	s.t.Helper()
	var at time.Time
	s.seen.until(fmt.Sprintf("%v are replaced", lost), func() (all bool) {
		at, all = s.seen.replaced(lost)
		return all
	})
	noticed := get(s.seen, func() time.Time { return s.seen.noticed(lost) })
	s.t.Logf("%d workers: noticed after %v, all run again after %v", len(lost), round(noticed.Sub(from)), round(at.Sub(from)))
	require.Less(s.t, at.Sub(from), 30*time.Second)
}

// takesOver waits until a later term than this has begun to write, and says how long that took.
func (s *system) takesOver(from time.Time, term uint64) {
	s.t.Helper()
	s.seen.until(fmt.Sprintf("another controller takes over from term %d", term), func() bool {
		return s.seen.leader.Term > term && s.seen.leader.Controller != "" && !s.seen.wrote[s.seen.leader.Term].IsZero()
	})
	led, wrote := get(s.seen, func() time.Time { return s.seen.led[s.seen.leader.Term] }), get(s.seen, func() time.Time { return s.seen.wrote[s.seen.leader.Term] })
	s.t.Logf("the next controller has the lease after %v, and decides after %v", round(led.Sub(from)), round(wrote.Sub(from)))
	require.Less(s.t, wrote.Sub(from), 30*time.Second)
}

// session is the one of a node that its record names.
func (s *system) session(node string) string {
	return get(s.seen, func() string {
		if n := s.seen.nodes[node]; n != nil {
			return n.Session
		}
		return ""
	})
}

func since(t time.Time) time.Duration { return round(time.Since(t)) }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
