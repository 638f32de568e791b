//go:build e2e && unix

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// history is every change of the records of a cluster, in the order in which JetStream has made them, which is the one order that
// there is: what is checked is not whether there could be one, but whether this one is right.
//
//   - A term belongs to one controller, and terms grow; whoever gave up a term does not have it again.
//   - Only who has had the lease writes jobs, and no earlier term after a later one.
//   - An incarnation of a worker is given to one session, and no other session says that it runs it.
//   - Epochs, failures and incidents never go back; what has ended, or is done, stays so.
//   - A session of a node that was replaced never comes back.
type history struct {
	records    []cluster.Record
	known      map[uint64]bool // revisions
	heard      map[incarnation]string
	beatFaults []string
}

func newHistory() history { return history{known: map[uint64]bool{}, heard: map[incarnation]string{}} }

// add notes a record and says whether it is new.
func (h *history) add(r cluster.Record) bool {
	if h.known[r.Revision] {
		return false
	}
	h.known[r.Revision] = true
	h.records = append(h.records, r)
	return true
}

// beat notes who says that it runs what.
func (h *history) beat(b *cluster.Beat) {
	for _, w := range b.Workers {
		i := incarnation{w.Job, w.Operator, w.Index, w.Epoch}
		if was, ok := h.heard[i]; ok && was != b.Session {
			h.beatFaults = append(h.beatFaults, fmt.Sprintf("sessions %s and %s both run %v", was, b.Session, i))
		}
		h.heard[i] = b.Session
	}
}

// kind is the first part of a key, as cluster.JobPrefix.
func kind(key string) string {
	before, _, found := strings.Cut(key, ".")
	if found {
		before += "."
	}
	return before
}

// missed is how many revisions were not seen, since later ones had replaced them.
func (h *history) missed() int {
	var first, last uint64
	for r := range h.known {
		first, last = min(cmp.Or(first, r), r), max(last, r)
	}
	return int(last-first) + 1 - len(h.known)
}

// faults are all ways in which the history is wrong.
func (h *history) faults() []string {
	c := checker{
		holders: map[uint64]string{}, jobs: map[string]*cluster.Job{}, given: map[incarnation]string{},
		nodes: map[string]*cluster.Node{}, gone: map[string]bool{}, faults: slices.Clone(h.beatFaults),
	}
	records := slices.Clone(h.records)
	slices.SortFunc(records, func(a, b cluster.Record) int { return cmp.Compare(a.Revision, b.Revision) })
	for i, r := range records {
		c.gap = c.gap || i > 0 && records[i-1].Revision+1 != r.Revision
		switch k := kind(r.Key); {
		case r.Value == nil:
			if k == cluster.NodePrefix {
				c.leaves(r.Key)
			}
		case k == cluster.LeaderKey:
			c.lease(r)
		case k == cluster.NodePrefix:
			c.node(r)
		case k == cluster.JobPrefix:
			c.job(r)
		}
	}
	for i, session := range h.heard {
		if was, ok := c.given[i]; ok && was != session {
			c.fault(0, "%v was given to session %s, and %s runs it", i, was, session)
		}
	}
	return c.faults
}

// checker reads a history.
type checker struct {
	gap     bool // revisions are missing since the lease was seen last
	term    uint64
	given   map[incarnation]string
	holders map[uint64]string // of terms; "" if it was given up
	jobs    map[string]*cluster.Job
	nodes   map[string]*cluster.Node
	gone    map[string]bool // sessions
	faults  []string
}

func (c *checker) fault(revision uint64, format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf("revision %d: ", revision)+fmt.Sprintf(format, args...))
}

func (c *checker) lease(r cluster.Record) {
	l, err := cluster.DecodeLeader(r.Value)
	if err != nil {
		c.fault(r.Revision, "%v", err)
		return
	}
	if l.Term < c.term {
		c.fault(r.Revision, "term %d after %d", l.Term, c.term)
	}
	if holder, ok := c.holders[l.Term]; ok && holder != l.Controller && l.Controller != "" {
		c.fault(r.Revision, "term %d of %q becomes that of %q", l.Term, holder, l.Controller)
	}
	c.term, c.gap = max(c.term, l.Term), false
	c.holders[l.Term] = l.Controller
}

func (c *checker) node(r cluster.Record) {
	n, err := cluster.DecodeNode(r.Value)
	if err != nil {
		c.fault(r.Revision, "%v", err)
		return
	}
	if c.gone[n.Session] {
		c.fault(r.Revision, "session %s of node %s comes back", n.Session, n.Name)
	}
	was := c.nodes[r.Key]
	switch {
	case was == nil:
	case was.Session != n.Session:
		c.gone[was.Session] = true
	case was.Renewal >= n.Renewal:
		c.fault(r.Revision, "renewal %d of node %s after %d", n.Renewal, n.Name, was.Renewal)
	}
	c.nodes[r.Key] = n
}

func (c *checker) leaves(key string) {
	if was := c.nodes[key]; was != nil {
		c.gone[was.Session] = true
		delete(c.nodes, key)
	}
}

func (c *checker) job(r cluster.Record) {
	j, err := cluster.DecodeJob(r.Value)
	if err != nil {
		c.fault(r.Revision, "%v", err)
		return
	}
	if j.Term > c.term && !c.gap {
		c.fault(r.Revision, "job %s is written in term %d before that has begun", j.ID, j.Term)
	}
	for i := range j.Workers {
		w := &j.Workers[i]
		if w.Session == "" {
			continue
		}
		is := incarnation{j.ID, w.Operator, w.Index, w.Epoch}
		if was, ok := c.given[is]; ok && was != w.Session {
			c.fault(r.Revision, "%v is given to session %s, and was to %s", is, w.Session, was)
		}
		c.given[is] = w.Session
	}
	if was := c.jobs[j.ID]; was != nil {
		c.changed(r.Revision, was, j)
	}
	c.jobs[j.ID] = j
}

func (c *checker) changed(revision uint64, was, is *cluster.Job) {
	if is.Term < was.Term {
		c.fault(revision, "job %s is written in term %d after %d", is.ID, is.Term, was.Term)
	}
	if is.Incidents < was.Incidents {
		c.fault(revision, "job %s has %d incidents after %d", is.ID, is.Incidents, was.Incidents)
	}
	if was.State.Ended() && is.State != was.State {
		c.fault(revision, "job %s is %s after it was %s", is.ID, is.State, was.State)
	}
	for i := range is.Workers {
		b := &is.Workers[i]
		a := was.Worker(b.Operator, b.Index)
		if a == nil {
			continue // it is new
		}
		if b.Epoch < a.Epoch || b.Failures < a.Failures && b.Epoch == a.Epoch || a.Done && !b.Done && is.Layout == was.Layout {
			c.fault(revision, "worker %s of job %s goes back from %+v to %+v", a.Name(), is.ID, *a, *b)
		}
	}
}

// reign is a time of leading, as its controller has logged it.
type reign struct {
	controller  string
	term        uint64
	from, until time.Time
}

// reigns reads the log of a controller that has ended at end, or is alive then.
func reigns(log string, end time.Time) []reign {
	var all []reign
	for line := range strings.Lines(log) {
		var at, controller string
		var term uint64
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "time":
				at = value
			case "controller":
				controller = value
			case "term":
				_, _ = fmt.Sscan(value, &term)
			}
		}
		when, err := time.Parse(time.RFC3339Nano, at)
		switch {
		case err != nil:
		case strings.Contains(line, "msg=leading "):
			all = append(all, reign{controller, term, when, end.Round(0)})
		case strings.Contains(line, `msg="leads no more"`) && len(all) > 0:
			all[len(all)-1].until = when
		}
	}
	return all
}

// starved is how late a controller that gets no time on a busy machine may say that it leads no more. What it must not do late is to write, and of
// that the history of the records tells.
const starved = 3 * time.Second

// overlaps are the pairs of reigns that were at the same time.
func overlaps(all []reign) []string {
	var faults []string
	for i, a := range all {
		for _, b := range all[:i] {
			if a.from.Add(starved).Before(b.until) && b.from.Add(starved).Before(a.until) {
				faults = append(faults, fmt.Sprintf("%s leads in term %d from %v to %v, and %s in term %d from %v to %v", a.controller, a.term, a.from, a.until, b.controller, b.term, b.from, b.until))
			}
		}
	}
	return faults
}

// TestHistory: what is wrong is found.
func TestHistory(t *testing.T) {
	lead := func(controller string, term uint64) cluster.Record {
		return cluster.Record{Key: cluster.LeaderKey, Value: (&cluster.Leader{Controller: controller, Term: term}).Encode()}
	}
	job := func(term, epoch uint64, session string, change func(*cluster.Job)) cluster.Record {
		j := cluster.NewJob("j", cluster.Spec{Operators: []cluster.Operator{{Name: "o", Workers: 1, Compute: 1}}}, time.Time{})
		j.Term, j.State = term, cluster.Running
		j.Workers[0].Epoch, j.Workers[0].Session = epoch, session
		if change != nil {
			change(j)
		}
		return cluster.Record{Key: cluster.JobKey("j"), Value: j.Encode()}
	}
	node := func(session string, renewal uint64) cluster.Record {
		return cluster.Record{Key: cluster.NodeKey("n"), Value: (&cluster.Node{Name: "n", Session: session, Renewal: renewal}).Encode()}
	}
	ended := func(j *cluster.Job) { j.State = cluster.Finished }
	for _, c := range []struct {
		why     string // empty if all is right
		records []cluster.Record
	}{
		{"", []cluster.Record{job(0, 0, "", nil), lead("a", 1), job(1, 1, "s", nil), lead("", 1), lead("b", 2), job(2, 2, "t", nil), job(2, 2, "t", ended)}},
		{"", []cluster.Record{node("s", 1), node("s", 2), node("t", 3), {Key: cluster.NodeKey("n")}, node("u", 1)}},
		{"term 1 after 2", []cluster.Record{lead("a", 1), lead("b", 2), lead("a", 1)}},
		{"becomes that of", []cluster.Record{lead("a", 1), lead("b", 1)}},
		{"becomes that of", []cluster.Record{lead("a", 1), lead("", 1), lead("a", 1)}},
		{"before that has begun", []cluster.Record{lead("a", 1), job(2, 1, "s", nil)}},
		{"in term 1 after 2", []cluster.Record{lead("a", 1), job(1, 1, "s", nil), lead("b", 2), job(2, 1, "s", nil), job(1, 1, "s", nil)}},
		{"given to session t, and was to s", []cluster.Record{lead("a", 1), job(1, 1, "s", nil), job(1, 1, "t", nil)}},
		{"goes back", []cluster.Record{lead("a", 1), job(1, 2, "s", nil), job(1, 1, "t", nil)}},
		{"after it was finished", []cluster.Record{lead("a", 1), job(1, 1, "s", ended), job(1, 1, "s", nil)}},
		{"session s of node n comes back", []cluster.Record{node("s", 1), node("t", 2), node("s", 3)}},
		{"session s of node n comes back", []cluster.Record{node("s", 1), {Key: cluster.NodeKey("n")}, node("s", 2)}},
		{"renewal 1", []cluster.Record{node("s", 1), node("s", 1)}},
	} {
		h := newHistory()
		for i, r := range c.records {
			r.Revision = uint64(i + 1)
			require.True(t, h.add(r))
			require.False(t, h.add(r))
		}
		if c.why == "" {
			require.Empty(t, h.faults())
		} else {
			require.Contains(t, strings.Join(h.faults(), "\n"), c.why)
		}
	}
	h := newHistory()
	work := []cluster.Status{{Job: "j", Operator: "o", Epoch: 1}}
	h.beat(&cluster.Beat{Session: "s", Workers: work})
	require.Empty(t, h.faults())
	first := lead("a", 1)
	first.Revision = 1
	h.add(first)
	r := job(1, 1, "u", nil)
	r.Revision = 5
	h.add(r)
	require.Equal(t, 3, h.missed())
	require.Contains(t, h.faults()[0], "and s runs it")
	h.beat(&cluster.Beat{Session: "t", Workers: work})
	require.Contains(t, h.faults()[0], "both run")
}

// TestReigns reads logs.
func TestReigns(t *testing.T) {
	end := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	a := reigns(`controller "a" of cluster "x" is ready to lead
time=2026-01-01T00:00:01.500Z level=INFO msg=leading controller=a term=1
time=2026-01-01T00:00:02.500Z level=WARN msg="lease was not renewed" term=1 err=x
time=2026-01-01T00:00:03.500Z level=INFO msg="leads no more" controller=a term=1 why="there is a later leader"
`, end)
	b := reigns("time=2026-01-01T00:00:03.500Z level=INFO msg=leading controller=b term=2\n", end)
	require.Equal(t, []reign{{"a", 1, end.Add(-58500 * time.Millisecond), end.Add(-56500 * time.Millisecond)}}, a)
	require.Equal(t, []reign{{"b", 2, end.Add(-56500 * time.Millisecond), end}}, b)
	require.Empty(t, overlaps(slices.Concat(a, b)))
	b[0].from = b[0].from.Add(-starved)
	a[0].from = a[0].from.Add(-starved)
	require.Empty(t, overlaps(slices.Concat(a, b)))
	b[0].from = b[0].from.Add(-time.Nanosecond)
	require.Len(t, overlaps(slices.Concat(a, b)), 1)
}
