package stream

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errKilled = errors.New("killed")

// broken is an exit whose worker is killed while it sends.
type broken struct{ sends int }

func (b *broken) Send(_, _ int, s Slab) {
	if b.sends--; b.sends < 0 {
		panic(errKilled)
	}
	s.Release()
}
func (*broken) Credit(int) int64        { return Unlimited }
func (*broken) AwaitCredit(int64) int64 { return Unlimited }
func (*broken) Hurry()                  {}

// What a source had given when its worker was killed counts as read, and as on its way if it had not been sent.
func TestTakenItemsCountWhenTheWorkerIsKilled(t *testing.T) {
	for name, route := range map[string]Option{"direct": Forward(), "one by one": HashUint64(func(v uint64) uint64 { return v })} {
		for _, windowed := range []bool{false, true} {
			n := sender[uint64](t, output{route, 1})
			exit := &broken{sends: 1}
			var windows any
			if windowed {
				windows = windowItems(1000)
			}
			task := newTask[uint64](&endless{}, newEmitter[uint64](n, 0, exit), windows)
			filled := 0
			require.PanicsWithValue(t, errKilled, func() {
				for {
					got, err := task.Fill(SlabItems)
					require.NoError(t, err)
					filled += got
				}
			})
			require.EqualValues(t, 2*SlabItems, task.Taken(), name)
			require.Equal(t, SlabItems, filled, name)
			require.Zero(t, task.Buffered(), "the slab that was being sent is the exit's to count")
		}
	}
}

// endless is a source without end.
type endless struct{ at uint64 }

func (e *endless) Read(dst []uint64) (int, error) {
	for i := range dst {
		dst[i] = e.at
		e.at++
	}
	return len(dst), nil
}
func (*endless) Close() error { return nil }
