package join

import (
	"errors"
	"fmt"
	"math"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("join: invalid options")

// Unbounded is a window that rows never leave.
const Unbounded = math.MaxInt64

// Kind says what becomes of left rows without a partner.
type Kind uint8

const (
	// Inner drops them. The default.
	Inner Kind = iota
	// LeftOuter emits each by itself, when no partner can come any more.
	LeftOuter
)

// Side describes the rows of one input.
type Side[K comparable, T any] struct {
	// Key returns what rows are joined by. Required.
	Key func(row *T) K

	// Time returns when the row happened, in the unit of Options.Window. nil says that the input is a table: its rows
	// have no time and are partners of every row.
	Time func(row *T) int64

	// Append and Decode are the form that rows have in backups; T.AppendBinary and (*T).UnmarshalBinary if they have
	// them. Decode must keep nothing of src. Required.
	Append func(dst []byte, row *T) ([]byte, error)
	Decode func(src []byte, row *T) error
}

// Options describe a join of rows of type L and R by keys of type K.
type Options[K comparable, L, R any] struct {
	Left  Side[K, L]
	Right Side[K, R]
	Kind  Kind

	// Window is how far the times of two partners may be apart, in the unit of Side.Time; 0 means the same time,
	// Unbounded any.
	Window int64

	// Slack is how much earlier than the latest row of its input a row may be and still find all its partners.
	Slack int64

	// Once says that a left row has at most one partner, as in the join of a stream with a table by the table's primary
	// key. It is then kept only until it has found it.
	Once bool

	// MaxRows bounds the rows kept of each input, the oldest leave; 0 means no bound. It is for inputs of which one may
	// stop while the other goes on: then nothing tells that a row has left the window.
	MaxRows int

	// MaxMatches is the most partners that a row has, 0 if unknown. It makes up Beta, and Alpha of a LeftOuter join; a
	// row with more is an error. Where Alpha is unknown, the runtime looks at the divergence after each row, which is
	// slow.
	MaxMatches int
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o *Options[K, L, R]) Validate() error {
	var faults []error
	check := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrOptions, what))
		}
	}
	check(o.Left.Key != nil && o.Left.Append != nil && o.Left.Decode != nil, "left: Key, Append and Decode are required")
	check(o.Right.Key != nil && o.Right.Append != nil && o.Right.Decode != nil, "right: Key, Append and Decode are required")
	check(o.Kind <= LeftOuter, "unknown kind")
	check(o.Window >= 0, "window is negative")
	check(o.Slack >= 0, "slack is negative")
	check(o.MaxRows >= 0, "bound on rows is negative")
	check(o.MaxMatches >= 0, "bound on matches is negative")
	return errors.Join(faults...)
}
