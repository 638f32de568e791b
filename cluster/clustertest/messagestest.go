package clustertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// TestMessages checks what any cluster.Messages must do, on a network without faults.
func TestMessages(t *testing.T, with Pair[cluster.Messages]) {
	t.Run("delivers", func(t *testing.T) { with(t, messagesAreDelivered) })
	t.Run("stops", func(t *testing.T) { with(t, messagesStop) })
}

// heard is what a subscription has delivered.
type heard struct {
	mu   sync.Mutex
	list []string
	busy bool
	t    *testing.T
}

func (h *heard) deliver(subject string, message []byte) {
	h.mu.Lock()
	if h.busy {
		h.t.Error("two at a time")
	}
	h.busy = true
	h.list = append(h.list, subject+" "+string(message))
	h.mu.Unlock()
	clear(message)
	h.mu.Lock()
	h.busy = false
	h.mu.Unlock()
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.list...)
}

// ready publishes until the subscription of a subject is known.
func ready(t *testing.T, m cluster.Messages, subject string, h *heard) {
	t.Helper()
	require.Eventually(t, func() bool {
		return len(h.all()) > 0 || m.Publish(subject, []byte("hello")) != nil
	}, testTime, 5*time.Millisecond)
	var n int
	require.Eventually(t, func() bool { // until those on their way have come
		was := n
		n = len(h.all())
		return n == was
	}, testTime, 50*time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = nil
}

func messagesAreDelivered(t *testing.T, one, other cluster.Messages) {
	exact, some := &heard{t: t}, &heard{t: t}
	stop, err := other.Subscribe("a.beat.x", exact.deliver)
	require.NoError(t, err)
	defer stop()
	stopAll, err := other.Subscribe("a.beat.*", some.deliver)
	require.NoError(t, err)
	defer stopAll()
	ready(t, one, "a.beat.x", exact)
	ready(t, one, "a.beat.y", some)
	body := []byte("body")
	require.NoError(t, one.Publish("a.beat.x", body))
	body[0] = 'x' // it is the caller's again
	for _, subject := range []string{"a.beat.y", "a.beat", "a.beat.x.y", "b.beat.x"} {
		require.NoError(t, one.Publish(subject, []byte("1")))
	}
	require.NoError(t, one.Publish("a.beat.x", nil))
	want := []string{"a.beat.x body", "a.beat.x "}
	require.Eventually(t, func() bool { return len(exact.all()) >= len(want) }, testTime, 5*time.Millisecond)
	require.Equal(t, want, exact.all())
	require.Eventually(t, func() bool { return len(some.all()) >= 3 }, testTime, 5*time.Millisecond)
	require.Equal(t, []string{"a.beat.x body", "a.beat.y 1", "a.beat.x "}, some.all())
}

func messagesStop(t *testing.T, one, other cluster.Messages) {
	h, still := &heard{t: t}, &heard{t: t}
	stop, err := other.Subscribe("a", h.deliver)
	require.NoError(t, err)
	stopStill, err := other.Subscribe("a", still.deliver)
	require.NoError(t, err)
	defer stopStill()
	ready(t, one, "a", h)
	ready(t, one, "a", still)
	stop()
	stop()
	h.mu.Lock()
	h.list = nil
	h.mu.Unlock()
	require.NoError(t, one.Publish("a", []byte("1")))
	require.Eventually(t, func() bool { return len(still.all()) > 0 }, testTime, 5*time.Millisecond)
	require.Empty(t, h.all())
}

// TestLogs checks what any cluster.Logs must do, on a network without faults.
func TestLogs(t *testing.T, with Pair[cluster.Logs]) {
	t.Run("keeps lines", func(t *testing.T) { with(t, logsKeepLines) })
	t.Run("follows", func(t *testing.T) { with(t, logsFollow) })
}

func line(i int) cluster.Line {
	return cluster.Line{At: time.Unix(int64(i), 0).UTC(), Level: "INFO", Text: fmt.Sprint(i), Node: "n", Worker: "w/0"}
}

func logsKeepLines(t *testing.T, one, other cluster.Logs) {
	var want []cluster.Line
	for i := range 100 {
		want = append(want, line(i))
		require.NoError(t, one.Append("job1", line(i)))
		require.NoError(t, one.Append("job2", line(-i)))
	}
	var got []cluster.Line
	require.Eventually(t, func() bool {
		got = nil
		require.NoError(t, other.Read(within(t), "job1", false, func(l cluster.Line) error {
			got = append(got, l)
			return nil
		}))
		return len(got) >= len(want)
	}, testTime, 5*time.Millisecond)
	require.Equal(t, want, got)
	require.NoError(t, other.Read(within(t), "none", false, func(cluster.Line) error { return errors.New("there is one") }))
	require.Error(t, one.Append("no.name", line(1)))

	require.NoError(t, other.Forget(within(t), "job1"))
	require.NoError(t, other.Forget(within(t), "none"))
	require.Error(t, other.Forget(within(t), "no.name"))
	left := func(job string) (n int) {
		require.NoError(t, one.Read(within(t), job, false, func(cluster.Line) error {
			n++
			return nil
		}))
		return n
	}
	require.Zero(t, left("job1"))
	require.Equal(t, 100, left("job2"))
}

func logsFollow(t *testing.T, one, other cluster.Logs) {
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	lines := make(chan cluster.Line, 1)
	done := make(chan error, 1)
	go func() {
		done <- other.Read(ctx, "job1", true, func(l cluster.Line) error {
			lines <- l
			return nil
		})
	}()
	for i := range 20 {
		require.NoError(t, one.Append("job1", line(i)))
		require.Equal(t, line(i), <-lines)
	}
	stop()
	require.NoError(t, <-done)

	own := errors.New("enough")
	require.ErrorIs(t, other.Read(within(t), "job1", true, func(cluster.Line) error { return own }), own)
}
