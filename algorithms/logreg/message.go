package logreg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMessage is wrapped by the errors about an Update or a Model that no operator of this job can have sent.
var ErrMessage = errors.New("logreg: malformed message")

// maxPiece is how many weights one Update holds at most: 48 KiB in its wire form.
const maxPiece = 4096

// Update is what a Learner sends to Global: for some weights, the sum of all steps that it has ever made. Sums and not
// differences, so that an update that comes twice does no harm and one that is lost is made good by the next for the
// same weights. An update of many weights comes in pieces. Its slices must not be changed.
type Update struct {
	Learner    int    // partition of the sender
	Clock      uint64 // number of the update, from 1
	More       bool   // another piece of the same update follows
	Done       bool   // the learner's input has ended
	KnownEpoch uint64 // the Model that the sender has last been given: of which incarnation of Global,
	Known      uint64 // and its version
	Index      []uint32
	Sum        []float64 // of the steps of weight Index[i]
}

// AppendBinary appends the wire form of u. It implements encoding.BinaryAppender.
func (u Update) AppendBinary(dst []byte) ([]byte, error) {
	if u.Learner < 0 || len(u.Index) != len(u.Sum) || len(u.Index) > maxPiece {
		return nil, fmt.Errorf("%w: update of learner %d with %d indices and %d sums", ErrMessage, u.Learner, len(u.Index), len(u.Sum))
	}
	dst = appendUvarints(dst, uint64(u.Learner), u.Clock, flag(u.More)|flag(u.Done)<<1, u.KnownEpoch, u.Known)
	return appendWeights(dst, u.Index, u.Sum), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrMessage and leaves u as it
// was. It implements encoding.BinaryUnmarshaler.
func (u *Update) UnmarshalBinary(src []byte) error {
	var f [5]uint64
	rest, err := uvarints(src, f[:])
	if err != nil || f[0] > math.MaxInt32 || f[2] > 3 || len(rest) > maxPiece*12 {
		return fmt.Errorf("%w: update of %d bytes", ErrMessage, len(src))
	}
	x := Update{Learner: int(f[0]), Clock: f[1], More: f[2]&1 != 0, Done: f[2]&2 != 0, KnownEpoch: f[3], Known: f[4]}
	if x.Index, x.Sum, err = weights(rest); err != nil {
		return err
	}
	*u = x
	return nil
}

// Model is what Global sends back to one Learner: for the weights that have changed since the model that the learner is
// known to have, what all other learners have made of them. So a model that never arrives is made good by the next, and a
// learner need only add its own steps, those that Global knows of and those it does not. Its slices must not be changed.
type Model struct {
	Epoch   uint64 // incarnation of Global
	Version uint64 // grows with every update that it has taken
	Slowest uint64 // the least clock of all learners that are not done
	Yours   uint64 // the clock of the receiver, as far as Global knows
	Whole   bool   // weights that are not listed are 0
	Index   []uint32
	Others  []float64 // sum of the steps of all learners but the receiver
}

// AppendBinary appends the wire form of m. It implements encoding.BinaryAppender.
func (m Model) AppendBinary(dst []byte) ([]byte, error) {
	if len(m.Index) != len(m.Others) {
		return nil, fmt.Errorf("%w: model of %d indices and %d weights", ErrMessage, len(m.Index), len(m.Others))
	}
	dst = appendUvarints(dst, m.Epoch, m.Version, m.Slowest, m.Yours, flag(m.Whole))
	return appendWeights(dst, m.Index, m.Others), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrMessage and leaves m as it
// was. It implements encoding.BinaryUnmarshaler.
func (m *Model) UnmarshalBinary(src []byte) error {
	var f [5]uint64
	rest, err := uvarints(src, f[:])
	if err != nil || f[4] > 1 {
		return fmt.Errorf("%w: model of %d bytes", ErrMessage, len(src))
	}
	x := Model{Epoch: f[0], Version: f[1], Slowest: f[2], Yours: f[3], Whole: f[4] != 0}
	if x.Index, x.Others, err = weights(rest); err != nil {
		return err
	}
	*m = x
	return nil
}

// Weight is one weight of the final model, which Global emits.
type Weight struct {
	Index uint32 // 2^Bits is the bias
	Value float64
}

// AppendBinary appends the 12 bytes of w. It implements encoding.BinaryAppender.
func (w Weight) AppendBinary(dst []byte) ([]byte, error) {
	return appendWeights(dst, []uint32{w.Index}, []float64{w.Value}), nil
}

// UnmarshalBinary decodes what AppendBinary made. The error wraps ErrMessage and leaves w as it was. It implements
// encoding.BinaryUnmarshaler.
func (w *Weight) UnmarshalBinary(src []byte) error {
	index, value, err := weights(src)
	if err != nil || len(index) != 1 {
		return fmt.Errorf("%w: weight of %d bytes", ErrMessage, len(src))
	}
	*w = Weight{index[0], value[0]}
	return nil
}

// Distance returns the Euclidean distance of two models, each with every index at most once and ascending, as Global
// emits them. Weights that are not listed are 0.
func Distance(a, b []Weight) float64 {
	squares := 0.0
	for len(a)+len(b) > 0 {
		var d float64
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Index < b[0].Index:
			d, a = a[0].Value, a[1:]
		case len(a) == 0 || b[0].Index < a[0].Index:
			d, b = b[0].Value, b[1:]
		default:
			d, a, b = a[0].Value-b[0].Value, a[1:], b[1:]
		}
		squares += d * d
	}
	return math.Sqrt(squares)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func appendUvarints(dst []byte, values ...uint64) []byte {
	for _, v := range values {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func uvarints(src []byte, dst []uint64) (rest []byte, err error) {
	for i := range dst {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return nil, ErrMessage
		}
		dst[i], src = v, src[n:]
	}
	return src, nil
}

func appendWeights(dst []byte, index []uint32, value []float64) []byte {
	for i := range index {
		dst = binary.LittleEndian.AppendUint32(dst, index[i])
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(value[i]))
	}
	return dst
}

// weights decodes what appendWeights made, in memory proportional to src. A weight that is not finite is an error.
func weights(src []byte) (index []uint32, value []float64, err error) {
	if len(src)%12 != 0 {
		return nil, nil, fmt.Errorf("%w: weights of %d bytes", ErrMessage, len(src))
	}
	for ; len(src) > 0; src = src[12:] {
		v := math.Float64frombits(binary.LittleEndian.Uint64(src[4:]))
		if v-v != 0 {
			return nil, nil, fmt.Errorf("%w: weight %v", ErrMessage, v)
		}
		index = append(index, binary.LittleEndian.Uint32(src))
		value = append(value, v)
	}
	return index, value, nil
}
