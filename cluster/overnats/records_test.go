package overnats

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// bucket gives the answers that it is told to, one after the other, the last one for ever. Writes that have none are done.
type bucket struct {
	jetstream.KeyValue
	writes []error
	asked  []uint64 // revisions that writes expected
}

func (b *bucket) Update(_ context.Context, _ string, _ []byte, revision uint64) (uint64, error) {
	b.asked = append(b.asked, revision)
	if len(b.writes) == 0 {
		return 9, nil
	}
	err := b.writes[0]
	if len(b.writes) > 1 || err == nil {
		b.writes = b.writes[1:]
	}
	return 9, err
}

// messages has one, or the error of reading it.
type messages struct {
	jetstream.Stream
	last *jetstream.RawStreamMsg
	err  error
}

func (m messages) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return m.last, m.err
}

// TestConflict: a write conflicts with what is there only, not with what is under way or could not be read.
func TestConflict(t *testing.T) {
	refused := func(code jetstream.ErrorCode) error {
		return fmt.Errorf("%w: %w", &jetstream.APIError{Code: 400, ErrorCode: code}, jetstream.ErrKeyRevisionMismatch)
	}
	mismatch, busy := refused(jetstream.JSErrCodeStreamWrongLastSequence), refused(jetstream.JSErrCodeStreamWrongLastSequenceConstant)
	lost := errors.New("lost")
	marker := messages{last: &jetstream.RawStreamMsg{Sequence: 7, Header: nats.Header{"KV-Operation": {"PURGE"}}}}
	value, none := messages{last: &jetstream.RawStreamMsg{Sequence: 7}}, messages{err: lost}
	create := func(f *Fabric) (uint64, error) { return f.Create(context.Background(), "k", nil) }
	update := func(f *Fabric) (uint64, error) { return f.Update(context.Background(), "k", nil, 3) }
	for name, test := range map[string]struct {
		do       func(*Fabric) (uint64, error)
		writes   []error
		last     messages
		asked    []uint64
		conflict bool
		err      error
	}{
		"done":                             {do: update, asked: []uint64{3}},
		"another revision":                 {do: update, writes: []error{mismatch}, asked: []uint64{3}, conflict: true},
		"behind others":                    {do: update, writes: []error{busy, busy, nil}, asked: []uint64{3, 3, 3}},
		"another revision, behind others":  {do: update, writes: []error{busy, mismatch}, asked: []uint64{3, 3}, conflict: true},
		"behind what is lost":              {do: update, writes: []error{busy}, err: busy},
		"created":                          {do: create, asked: []uint64{0}},
		"created after a delete":           {do: create, writes: []error{mismatch, nil}, last: marker, asked: []uint64{0, 7}},
		"not created after a delete":       {do: create, writes: []error{mismatch}, last: marker, asked: []uint64{0, 7}, conflict: true},
		"created after a delete, behind":   {do: create, writes: []error{busy, mismatch, busy, nil}, last: marker, asked: []uint64{0, 0, 7, 7}},
		"there already":                    {do: create, writes: []error{mismatch}, last: value, asked: []uint64{0}, conflict: true},
		"there, but it could not be read":  {do: create, writes: []error{mismatch}, last: none, asked: []uint64{0}, err: lost},
		"not known whether it was created": {do: create, writes: []error{lost}, asked: []uint64{0}, err: lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bucket{writes: test.writes}
				began := time.Now()
				revision, err := test.do(&Fabric{kv: b, bucket: test.last})
				require.LessOrEqual(t, time.Since(began), requestTime)
				if test.asked != nil {
					require.Equal(t, test.asked, b.asked)
				}
				switch {
				case test.conflict:
					require.ErrorIs(t, err, cluster.ErrConflict)
				case test.err != nil:
					require.ErrorIs(t, err, test.err)
					require.NotErrorIs(t, err, cluster.ErrConflict)
				default:
					require.NoError(t, err)
					require.Equal(t, uint64(9), revision)
				}
			})
		})
	}
}
