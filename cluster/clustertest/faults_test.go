package clustertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/storetest"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
	"github.com/afstream/afstream/transport/link"
)

var netRuns = flag.Int("net.runs", 30, "seeds of TestRecordsThroughFaults")

// TestRecordsThroughFaults: whatever happens to requests and processes, writes are linearizable and watches end up with what
// there is.
func TestRecordsThroughFaults(t *testing.T) {
	for seed := range uint64(*netRuns) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { recordsThroughFaults(t, seed) })
		})
	}
}

func recordsThroughFaults(t *testing.T, seed uint64) {
	n := New(t, seed, Faults{Slow: 50 * time.Millisecond, Fail: 0.1, Stale: 100 * time.Millisecond})
	h := NewHistory()
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	var all sync.WaitGroup
	var procs []*Process
	for i := range 5 {
		p := n.Process(fmt.Sprint("p", i))
		procs = append(procs, p)
		all.Go(func() { Compete(ctx, h.Record(p), i, 200) })
	}
	watcher := n.Process("watcher")
	seen := map[string]string{}
	watching, stopWatch := context.WithCancel(ctx)
	all.Go(func() { watchOn(watching, watcher, seen) })
	rnd := rand.New(rand.NewPCG(seed, 7))
	for range 20 {
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		p := append(procs, watcher)[rnd.IntN(6)]
		switch rnd.IntN(4) {
		case 0:
			p.Pause(time.Duration(rnd.IntN(12_000)) * time.Millisecond)
		case 1:
			n.Block(p.Name(), Keeper)
		case 2:
			n.Block(Keeper, p.Name())
		case 3:
			p.Cut()
		}
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		p.Heal()
		n.Unblock(p.Name(), Keeper)
		n.Unblock(Keeper, p.Name())
	}
	n.SetFaults(Faults{Slow: 10 * time.Millisecond}) // what takes no time is all at once, and could be in any order
	time.Sleep(20 * time.Minute)
	stopWatch()
	all.Wait()
	LookAgain(ctx, h.Record(watcher))
	h.Check(t)
	list, err := watcher.List(ctx, "")
	require.NoError(t, err)
	want := map[string]string{}
	for _, r := range list {
		want[r.Key] = string(r.Value)
	}
	require.Equal(t, want, seen)
}

// watchOn keeps what there is, as callers of Watch do: what is told of no more is not there any more.
func watchOn(ctx context.Context, r cluster.Records, seen map[string]string) {
	for ctx.Err() == nil {
		synced := false
		again := map[string]bool{}
		_ = r.Watch(ctx, "", func(r cluster.Record) {
			again[r.Key] = true
			seen[r.Key] = string(r.Value)
			if r.Value == nil {
				delete(seen, r.Key)
			}
		}, func() {
			for key := range seen {
				if !again[key] {
					delete(seen, key)
				}
			}
			synced = true
		})
		if !synced {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// TestMessagesThroughFaults: some are lost, some come twice, some are overtaken, and none comes from a process that is cut off.
func TestMessagesThroughFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, 3, Faults{Lose: 0.2, Double: 0.2, Delay: time.Second})
		one, other := n.Process("one"), n.Process("other")
		h := &heard{t: t}
		_, err := other.Subscribe("a.*", h.deliver)
		require.NoError(t, err)
		for i := range 200 {
			require.NoError(t, one.Publish("a.x", fmt.Appendf(nil, "%03d", i)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		got := h.all()
		require.False(t, slices.IsSorted(got), "overtaken")
		slices.Sort(got)
		total := len(got)
		got = slices.Compact(got)
		require.InDelta(t, 200*(1-0.2*0.84), len(got), 30, "lost")
		require.Greater(t, total, len(got)+10, "twice")

		n.SetFaults(Faults{})
		quiet := func(what string) {
			t.Helper()
			was := len(h.all())
			_ = one.Publish("a.x", nil) // it may notice
			time.Sleep(time.Second)
			require.Len(t, h.all(), was, what)
		}
		for what, place := range map[string]string{"the sender is cut off": "one", "the receiver is": "other"} {
			n.Cut(place)
			quiet(what)
			n.Heal(place)
		}
		n.Block("one", "other")
		quiet("one way")
		n.Unblock("one", "other")
		n.Block("other", "one")
		was := len(h.all())
		require.NoError(t, one.Publish("a.x", nil))
		time.Sleep(time.Second)
		require.Len(t, h.all(), was+1, "the other way")
		other.Kill()
		quiet("the receiver is dead")
	})
}

// TestPause: what a process does while it stands still, and what arrives, is done afterwards; its calls return then.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, 4, Faults{})
		one, other := n.Process("one"), n.Process("other")
		h, own := &heard{t: t}, &heard{t: t}
		_, err := other.Subscribe("a", h.deliver)
		require.NoError(t, err)
		_, err = one.Subscribe("b", own.deliver)
		require.NoError(t, err)
		revision, err := other.Create(t.Context(), "k", []byte("1"))
		require.NoError(t, err)

		one.Pause(10 * time.Second)
		began := time.Now()
		require.NoError(t, one.Publish("a", []byte("late")))
		require.NoError(t, other.Publish("b", nil))
		done := make(chan error, 1)
		go func() {
			_, err := one.Update(t.Context(), "k", []byte("late"), revision)
			done <- err
		}()
		time.Sleep(9 * time.Second)
		require.Empty(t, h.all())
		require.Empty(t, own.all())
		_, err = other.Update(t.Context(), "k", []byte("2"), revision)
		require.NoError(t, err)
		require.ErrorIs(t, <-done, cluster.ErrConflict)
		require.Equal(t, 10*time.Second, time.Since(began))
		synctest.Wait()
		require.Len(t, h.all(), 1)
		require.Len(t, own.all(), 1)
	})
}

// TestKill: nothing gets out of a dead process, and its calls end with their contexts; another one takes its name.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, 5, Faults{Slow: time.Second})
		one, other := n.Process("one"), n.Process("other")
		h := &heard{t: t}
		_, err := other.Subscribe("a", h.deliver)
		require.NoError(t, err)
		inner := backup.NewMemory()
		store := one.Store("store", inner)
		applied := make(chan error, 1)
		store.Apply(put("k"), func(err error) { applied <- err })
		one.Kill()
		one.Kill()
		require.NoError(t, one.Publish("a", nil))
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		_, err = one.Create(ctx, "k", nil)
		require.ErrorIs(t, err, ErrKilled)
		require.Error(t, ctx.Err())
		require.NoError(t, one.Watch(ctx, "", func(cluster.Record) {}, func() {}))
		require.Empty(t, h.all())
		require.ErrorIs(t, <-applied, ErrKilled)
		require.Error(t, store.Fence("o", 2))
		require.NoError(t, store.Close())
		require.NoError(t, inner.Scan(nil, func(_, _ []byte) error { return errors.New("it was applied") }))
		list, err := other.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, list)

		again := n.Process("one")
		require.NoError(t, again.Publish("a", nil))
		time.Sleep(time.Second)
		require.Len(t, h.all(), 1)
		require.Panics(t, func() { n.Process("one") })
	})
}

func put(key string) *backup.Batch {
	return &backup.Batch{Owner: "o", Epoch: 1, Puts: []backup.Entry{{Key: []byte(key), Value: []byte("v")}}}
}

// TestLinks: a link brings all over such a network, in order.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, 9, Faults{Lose: 0.2, Double: 0.1, Delay: 100 * time.Millisecond})
		one, other := n.Process("one"), n.Process("other")
		sender, receiver := ringbuf.NewParker(), ringbuf.NewParker()
		from, err := link.NewBusOver(one.Carrier(), "afstream.test")
		require.NoError(t, err)
		defer from.Close()
		to, err := link.NewBusOver(other.Carrier(), "afstream.test")
		require.NoError(t, err)
		defer to.Close()
		out, err := from.Dial("id", sender, link.Config{})
		require.NoError(t, err)
		in, err := to.Listen("id", receiver, nil, link.Config{})
		require.NoError(t, err)
		const frames = 5000
		go func() {
			for i := range uint64(frames) {
				sender.Wait(func() bool { return out.Send(transport.Frame{Kind: transport.Punctuation, First: i, Count: 1}) })
			}
		}()
		for i := range uint64(frames) {
			if i == frames/2 {
				one.Cut()
				time.AfterFunc(30*time.Second, one.Heal)
			}
			var f transport.Frame
			receiver.Wait(func() (ok bool) {
				f, ok = in.Receive()
				return ok
			})
			require.Equal(t, i, f.First)
		}
		require.Positive(t, out.Stats().Resent)
	})
}

// TestStore: the way to a store changes nothing of what it does.
func TestStore(t *testing.T) {
	n := New(t, 6, Faults{Slow: time.Millisecond}) // outside of a bubble: its tests are many, each with a name
	storetest.Run(t, func(t testing.TB) backup.Store {
		p := n.Process(t.Name())
		t.Cleanup(p.Kill)
		return p.Store("store", backup.NewMemory())
	})
}

// TestStoreThroughCuts: a short one delays batches, a long one ends the store for good, and a fence stops what is late.
func TestStoreThroughCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, 8, Faults{Slow: 10 * time.Millisecond, Fail: 0.2})
		one, other := n.Process("one"), n.Process("other")
		inner := backup.NewMemory()
		store, rival := one.Store("store", inner), other.Store("store", inner)
		defer store.Close()
		defer rival.Close()
		apply := func(s backup.Store, key string) chan error {
			done := make(chan error, 1)
			s.Apply(put(key), func(err error) { done <- err })
			return done
		}
		require.NoError(t, <-apply(store, "a"))
		n.Block("store", "one") // it is done, and nobody hears of it
		began := time.Now()
		done := apply(store, "b")
		time.Sleep(30 * time.Second)
		require.Empty(t, done)
		n.Unblock("store", "one")
		require.NoError(t, <-done)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)

		one.Cut()
		done = apply(store, "late")
		require.NoError(t, rival.Fence("o", 2))
		time.Sleep(10 * time.Second)
		one.Heal()
		require.ErrorIs(t, <-done, backup.ErrFenced)

		n.Cut("store")
		require.ErrorIs(t, <-apply(store, "never"), ErrUnreached)
		n.Heal("store")
		require.ErrorIs(t, <-apply(store, "never"), ErrUnreached, "for good")
		require.Error(t, store.Scan(nil, nil))
		var keys []string
		require.NoError(t, rival.Scan(nil, func(key, _ []byte) error {
			keys = append(keys, string(key))
			return nil
		}))
		require.Equal(t, []string{"a", "b"}, keys)
	})
}
