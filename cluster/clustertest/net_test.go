package clustertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/afstream/afstream/cluster"
)

// pair runs a test in a bubble, with two processes of a network on which all takes its time.
func pair[T any](of func(*Process) T) Pair[T] {
	return func(t *testing.T, test func(t *testing.T, one, other T)) {
		synctest.Test(t, func(t *testing.T) {
			n := New(t, 1, Faults{Slow: 3 * time.Millisecond})
			test(t, of(n.Process("one")), of(n.Process("other")))
		})
	}
}

func TestConformance(t *testing.T) {
	TestRecords(t, pair(func(p *Process) cluster.Records { return p }))
	TestMessages(t, pair(func(p *Process) cluster.Messages { return p }))
	TestLogs(t, pair(func(p *Process) cluster.Logs { return p }))
}
