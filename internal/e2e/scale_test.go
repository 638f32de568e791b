//go:build e2e && unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// scale asks for another number of workers of a job's second operator, and does not wait.
func (s *system) scale(j job, n int) {
	s.t.Helper()
	operator := get(s.seen, func() string { return s.seen.jobs[j.id].Spec.Operators[1].Name })
	s.command("job", "scale", "--detach", j.id, fmt.Sprintf("%s=%d", operator, n))
}

// scaled waits until that is over, and says how long it took. A job that has ended meanwhile is no use.
func (s *system) scaled(j job, n int) cluster.Scaling {
	s.t.Helper()
	s.seen.until(fmt.Sprintf("job %s is scaled to %d workers, or is not", j.id, n), func() bool {
		sc := s.seen.jobs[j.id].Scaling
		return sc != nil && sc.Workers == n && sc.Phase.Over()
	})
	sc := get(s.seen, func() cluster.Scaling { return *s.seen.jobs[j.id].Scaling })
	s.t.Logf("job %s, %d workers: %s after %v %s", j.id, n, sc.Phase, round(sc.Ended.Sub(sc.Since)), sc.Why)
	return sc
}

// TestOperatorsAreScaled up while a node is killed, and down again: results are as if nothing had happened, but for what
// the failures may cost.
func TestOperatorsAreScaled(t *testing.T) {
	s := start(t, setup{})
	s.backup.way.Delay(2 * time.Millisecond) // all that is in flight is processed before a job is at rest
	jobs := []job{                           // error-free would take a commit for each of thousands of items that are in flight
		{id: "heavy", args: []string{"heavy-hitter", "--items", "15M"}, from: 20_000, most: 200_000},
		{id: "words", args: []string{"wordcount", "--input", book(t), "--theta", "5000"}, from: 100, most: 5_000},
		{id: "exact", args: []string{"heavy-hitter", "--items", "15M", "--guarantee", "mini-batch", "--batch", "20000"}, exact: true, from: 20_000, most: 200_000},
	}
	s.submitAll(jobs)
	// Of two workers each: there is room for three on two nodes. The words are at their end too soon for a second time.
	first := []int{3, 1 + 2*s.draw.IntN(2), 3}
	for i, j := range jobs {
		s.scale(j, first[i])
	}
	time.Sleep(time.Duration(s.draw.IntN(150)) * time.Millisecond) // into any of the phases
	m, lost := s.victim()
	s.kill(m)
	for i, j := range jobs {
		sc := s.scaled(j, first[i])
		require.Equal(t, cluster.ScaleDone, sc.Phase, "job %s: %s", j.id, sc.Why)
	}
	s.seen.until(fmt.Sprintf("%v are replaced", lost), func() bool { _, all := s.seen.replaced(lost); return all })
	m.Start()
	for _, i := range []int{0, 2} {
		s.scale(jobs[i], 1+i/2)
	}
	for _, i := range []int{0, 2} {
		sc := s.scaled(jobs[i], 1+i/2)
		require.Equal(t, cluster.ScaleDone, sc.Phase, "job %s: %s", jobs[i].id, sc.Why)
	}
	s.finish(jobs)
}
