package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// clock is what a leader sends back: how many items it has seen.
type clock struct{ Seen uint64 }

// follower passes numbers on, and never runs more than ahead items before what the leader has told it.
type follower struct {
	relay
	ahead, sent, told uint64
	worst             *uint64
}

func (f *follower) Process(in uint64, out *stream.Emitter[uint64]) error {
	f.sent++
	*f.worst = max(*f.worst, f.sent-min(f.sent, f.told))
	return f.relay.Process(in, out)
}

func (f *follower) Feedback(_ int, c clock) error {
	f.told = max(f.told, c.Seen)
	return nil
}

func (f *follower) Pace() int { return int(f.told + f.ahead - min(f.told+f.ahead, f.sent)) }

// leader counts items and tells the follower after each hundred.
type leader struct {
	sums
	seen uint64
	back *stream.Feedback[clock]
}

func (l *leader) SetFeedback(back *stream.Feedback[clock]) {
	l.back = back
	l.back.Broadcast(clock{Seen: l.seen})
}

func (l *leader) Process(in uint64, out *stream.Emitter[[8]uint64]) error {
	l.seen++
	if l.seen%100 == 0 {
		l.back.Broadcast(clock{Seen: l.seen})
	}
	return l.sums.Process(in, out)
}

func (l *leader) RestoreState(r *stream.StateReader) error {
	err := l.sums.RestoreState(r)
	l.seen = total([][8]uint64{l.counts})
	return err
}

func led(n uint64, ahead uint64, worst *uint64, out *gather[[8]uint64]) *stream.Topology {
	t := stream.New("led")
	s := stream.From(t, "source", newNumbers(n))
	f := stream.Then(s, "follow", func() *follower { return &follower{ahead: ahead, worst: worst} })
	l := stream.Then(f, "lead", func() *leader { return &leader{} }, stream.EmitOnClose())
	stream.To(l, "out", out.sink)
	stream.FeedbackTo[clock](l, f)
	return t
}

// Feedback paces an operator upstream: it is never further ahead than it allows itself.
func TestFeedbackPacesAnOperatorUpstream(t *testing.T) {
	const n, ahead = 20_000, 1000
	var worst uint64
	var out gather[[8]uint64]
	r, err := controller.RunLocal(context.Background(), led(n, ahead, &worst, &out), options(1e9, 1e6, 1e6))
	require.NoError(t, err)
	require.EqualValues(t, n, total(out.all()))
	require.LessOrEqual(t, worst, uint64(ahead))
	require.NotZero(t, r.Operators[1].Feedback)
}

// A failed receiver or sender of feedback holds nothing up, and what was lost with it is counted.
func TestFeedbackThroughFailures(t *testing.T) {
	for _, who := range []string{"follow", "lead"} {
		var worst uint64
		var out gather[[8]uint64]
		o := options(100, 400, 400)
		for i := range uint64(4) {
			o.Faults = append(o.Faults, controller.Fault{Operator: who, Items: 3000 * (i + 1)})
		}
		started := time.Now()
		r, err := controller.RunLocal(context.Background(), led(20_000, 1000, &worst, &out), o)
		require.NoError(t, err)
		require.Len(t, r.Failures, 4)
		require.Less(t, time.Since(started), 30*time.Second)
		require.InDelta(t, 20_000, float64(total(out.all())), 100+400+400+400)
	}
}

func TestFeedbackBetweenOperatorsThatDoNotFit(t *testing.T) {
	topo := stream.New("mute")
	s := stream.From(topo, "source", newNumbers(10))
	f := stream.Then(s, "follow", newRelay)
	l := stream.Then(f, "lead", func() *leader { return &leader{} }, stream.EmitOnClose())
	stream.To(l, "out", (&gather[[8]uint64]{}).sink)
	stream.FeedbackTo[clock](l, f)
	_, err := controller.RunLocal(context.Background(), topo, options(10, 10, 10))
	require.ErrorIs(t, err, worker.ErrOperator)
	require.ErrorContains(t, err, fmt.Sprintf("%T takes no feedback", &relay{}))
}
