package join

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// row is a row of either input; id tells rows apart that are otherwise alike.
type row struct {
	key  uint8
	time int64
	id   uint32
}

func side(timed bool) Side[uint8, row] {
	s := Side[uint8, row]{
		Key: func(r *row) uint8 { return r.key },
		Append: func(dst []byte, r *row) ([]byte, error) {
			dst = binary.LittleEndian.AppendUint64(append(dst, r.key), uint64(r.time))
			return binary.LittleEndian.AppendUint32(dst, r.id), nil
		},
		Decode: func(src []byte, r *row) error {
			if len(src) != 13 {
				return errors.New("row has another length")
			}
			*r = row{src[0], int64(binary.LittleEndian.Uint64(src[1:])), binary.LittleEndian.Uint32(src[9:])}
			return nil
		},
	}
	if timed {
		s.Time = func(r *row) int64 { return r.time }
	}
	return s
}

func options(kind Kind, window, slack int64) Options[uint8, row, row] {
	return Options[uint8, row, row]{Left: side(true), Right: side(true), Kind: kind, Window: window, Slack: slack}
}

// step is one row on its way into a join.
type step struct {
	left bool
	row
}

// steps are n rows of both inputs whose times go up, but for at most slack.
func steps(seed uint64, n, keys int, slack int64) []step {
	r := rand.New(rand.NewPCG(seed, 3))
	var list []step
	now := [2]int64{-50, -50}
	for i := range n {
		s := r.IntN(2)
		now[s] += int64(r.IntN(4))
		list = append(list, step{s == 0, row{uint8(r.IntN(keys)), now[s] - r.Int64N(slack+1), uint32(i)}})
	}
	return list
}

// feed processes rows and returns the pairs.
func feed(t require.TestingT, j *Join[uint8, row, row], list ...step) (pairs []Pair[row, row]) {
	emit := func(p Pair[row, row]) { pairs = append(pairs, p) }
	for _, s := range list {
		if s.left {
			require.NoError(t, j.addLeft(&s.row, emit))
		} else {
			require.NoError(t, j.addRight(&s.row, emit))
		}
	}
	return pairs
}

func closing(j *Join[uint8, row, row], last bool) (pairs []Pair[row, row]) {
	j.close(stream.Window{Number: 1, Last: last}, func(p Pair[row, row]) { pairs = append(pairs, p) })
	return pairs
}

func exactOf(o Options[uint8, row, row], list []step) []Pair[row, row] {
	var left, right []row
	for _, s := range list {
		if s.left {
			left = append(left, s.row)
		} else {
			right = append(right, s.row)
		}
	}
	return Exact(o, left, right)
}
