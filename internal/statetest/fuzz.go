package statetest

import (
	"encoding"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// Restorable is a state that can be backed up and restored.
type Restorable interface {
	stream.BackupState
	stream.RestoreState
}

// Restore describes how the RestoreState of S is fuzzed.
type Restore[S Restorable] struct {
	// Fresh returns an empty state.
	Fresh func() S
	// View returns what a backup must preserve, to be compared by require.Equal.
	View func(S) any
	// Check, if set, looks for faults in a state that has accepted bytes.
	Check func(t *testing.T, restored S)
	// Refusals are the errors, besides stream.ErrState, that the error about bytes may wrap: mostly one about a backup
	// of another shape.
	Refusals []error
}

// Fuzz hands bytes to RestoreState, beginning with whole backups of the seeds: it must not panic, what it refuses it
// must refuse with one of the errors it is allowed, and what it accepts must survive a backup.
func (r Restore[S]) Fuzz(f *testing.F, seeds ...S) {
	for _, seed := range seeds {
		f.Add(Backup(f, seed, true))
	}
	f.Add([]byte{1, 2, 3})
	f.Add(Element("", "\x01"))
	f.Add(Element("\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(r.check)
}

func (r Restore[S]) check(t *testing.T, wire []byte) {
	a := r.Fresh()
	if err := a.RestoreState(Reader(wire)); err != nil {
		require.True(t, r.refuses(err), "not an error that RestoreState is to return: %v", err)
		return
	}
	if r.Check != nil {
		r.Check(t, a)
	}
	b := r.Fresh()
	require.NoError(t, b.RestoreState(Reader(Backup(t, a, true))))
	require.Equal(t, r.View(a), r.View(b))
}

// refuses says whether err is one that bytes may be refused with.
func (r Restore[S]) refuses(err error) bool {
	return errors.Is(err, stream.ErrState) || slices.ContainsFunc(r.Refusals, func(e error) bool { return errors.Is(err, e) })
}

// FuzzBinary hands bytes to UnmarshalBinary of a zero T, beginning with the encoded seeds: it must not panic, what it
// refuses it must refuse with an error that wraps invalid and leave zero, and what it accepts must be encoded to bytes
// that mean the same. check, if not nil, looks for faults in what was accepted; again is its encoding, which is wire
// where there is only one for each value.
func FuzzBinary[T any, P interface {
	*T
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}](f *testing.F, invalid error, check func(t *testing.T, v T, wire, again []byte), seeds ...T) {
	for i := range seeds {
		wire, err := P(&seeds[i]).AppendBinary(nil)
		require.NoError(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var v, zero, decoded T
		if err := P(&v).UnmarshalBinary(slices.Clone(wire)); err != nil {
			require.ErrorIs(t, err, invalid)
			require.Equal(t, zero, v)
			return
		}
		again, err := P(&v).AppendBinary(nil)
		require.NoError(t, err)
		require.NoError(t, P(&decoded).UnmarshalBinary(again))
		require.Equal(t, v, decoded)
		if check != nil {
			check(t, v, wire, again)
		}
	})
}

// Canonical is a check for FuzzBinary: there is only one encoding of each value.
func Canonical[T any](t *testing.T, _ T, wire, again []byte) {
	require.Equal(t, wire, again, "a second encoding of the same value")
}
