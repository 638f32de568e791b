package link

// incoming is the receiver of one direction: a pure machine that puts messages in order.
//
// Invariants:
//
//  1. All messages up to got were handed on, each once and in order.
//  2. early holds messages above got+1 only, and none beyond the window of the peer's owner.
type incoming struct {
	got   uint64
	early map[uint64][]byte
	ready [][]byte // what accept hands on
}

// verdict says what a message was.
type verdict int

const (
	inOrder   verdict = iota
	early             // kept until those before it are there
	opensGap          // the same, and the first such
	duplicate         // dropped: it is here already
	beyond            // dropped: the peer must not have sent it yet, or it is none of this connection
)

// accept takes message n with its body. The owner is done with all up to taken, and the peer may be at most limit
// messages ahead of that. What is in order now is in ready until the next call.
func (in *incoming) accept(n uint64, body []byte, taken uint64, limit int) verdict {
	clear(in.ready)
	in.ready = in.ready[:0]
	switch {
	case n <= in.got || in.early[n] != nil:
		return duplicate
	case n-taken > uint64(limit):
		return beyond
	case n > in.got+1:
		if in.early == nil {
			in.early = map[uint64][]byte{}
		}
		in.early[n] = body
		if len(in.early) == 1 {
			return opensGap
		}
		return early
	}
	for body != nil {
		in.got++
		in.ready = append(in.ready, body)
		body = in.early[in.got+1]
		delete(in.early, in.got+1)
	}
	return inOrder
}

// missing returns the lowest number that is here although one before it is not; 0 if nothing is known to be missing.
func (in *incoming) missing() uint64 {
	least := uint64(0)
	for n := range in.early {
		if least == 0 || n < least {
			least = n
		}
	}
	return least
}
