package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/transport"
)

// TestNothingBeyondTheMarkComesEarly: while a partition is silent a channel lets in all up to the mark and nothing beyond it, and
// afterwards all the rest in order, whatever was on its way when the sender was asked to go back.
func TestNothingBeyondTheMarkComesEarly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		end := rapid.Uint64Range(0, 60).Draw(rt, "end")
		place := rapid.Uint64Range(0, end).Draw(rt, "place")
		mark := rapid.Uint64Range(place, end).Draw(rt, "mark")
		ch := &inChannel{next: place}
		r := &rebuild{target: []uint64{mark}}
		r.silent.Store(true)

		sent := place                  // by the sender
		var onTheWay []transport.Frame // oldest first
		send := func() {
			f := transport.Frame{First: sent, Count: int(rapid.Uint64Range(1, min(9, end-sent)).Draw(rt, "items"))}
			if sent > 0 && rapid.IntRange(0, 3).Draw(rt, "cut elsewhere") == 0 {
				f.First -= min(sent, 3) // what it goes back to is a little before
				f.Count += int(sent - f.First)
			}
			sent = f.Next()
			onTheWay = append(onTheWay, f)
		}
		receive := func() {
			f := onTheWay[0]
			onTheWay = onTheWay[1:]
			if (ch.gap != noGap || r.silent.Load()) && ch.tooEarly(r, &f) {
				return
			}
			require.LessOrEqual(rt, f.First, ch.next, "a gap")
			ch.next = max(ch.next, f.Next())
			if r.silent.Load() {
				require.LessOrEqual(rt, ch.next, mark)
			}
		}
		for range 400 {
			switch {
			case ch.next == mark && r.silent.Load() && rapid.Bool().Draw(rt, "the other inputs are there"):
				r.silent.Store(false)
			case ch.gap == dropped && !r.silent.Load() && rapid.Bool().Draw(rt, "ask"):
				ch.gap, sent = asked, ch.next
			case sent < end && rapid.Bool().Draw(rt, "send"):
				send()
			case len(onTheWay) > 0:
				receive()
			}
		}
		for sent < end || len(onTheWay) > 0 || ch.gap == dropped || r.silent.Load() {
			r.silent.Store(r.silent.Load() && ch.next < mark)
			switch {
			case ch.gap == dropped && !r.silent.Load():
				ch.gap, sent = asked, ch.next
			case len(onTheWay) > 0:
				receive()
			case sent < end:
				send()
			}
		}
		require.Equal(rt, end, ch.next)
		require.Equal(rt, noGap, ch.gap)
	})
}
