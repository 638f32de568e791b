package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSafe checks the position that a sender is told against a list of everything that happened.
func TestSafe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s safe
		var ends []uint64 // position after each delivery, in the numbers of the present sender
		next, skipped, durable := uint64(0), uint64(0), 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1, 2:
				next += rapid.Uint64Range(1, 9).Draw(rt, "items")
				s.hand(next)
				ends = append(ends, next)
			case 3: // what is not handed over is as safe as what was before it
				next += rapid.Uint64Range(1, 9).Draw(rt, "dropped")
				s.skip(next)
				if len(ends) > durable {
					ends[len(ends)-1] = next
				} else {
					skipped = next
				}
			case 4:
				durable = rapid.IntRange(durable, len(ends)).Draw(rt, "durable")
			default:
				s.renumber()
				next, skipped = 0, 0
				clear(ends)
			}
			want := skipped
			if durable > 0 {
				want = max(want, ends[durable-1])
			}
			require.Equal(rt, want, s.durable(uint64(durable)))
			require.Len(rt, s.owed, len(ends)-durable)
		}
	})
}
