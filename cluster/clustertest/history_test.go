package clustertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// careless gives the answers that it is told to.
type careless struct {
	cluster.Records
	revision uint64
	err      error
}

func (c *careless) Create(context.Context, string, []byte) (uint64, error) { return c.answer() }

func (c *careless) Update(context.Context, string, []byte, uint64) (uint64, error) { return c.answer() }

func (c *careless) Delete(context.Context, string, uint64) error { return c.err }

func (c *careless) Get(_ context.Context, key string) (cluster.Record, error) {
	return cluster.Record{Key: key, Value: []byte("x"), Revision: 9}, nil
}

func (c *careless) answer() (uint64, error) {
	time.Sleep(time.Second)
	return c.revision, c.err
}

// TestHistory: what cannot be is found out, what may be is not blamed.
func TestHistory(t *testing.T) {
	conflict, lost := cluster.ErrConflict, errors.New("lost")
	type step struct {
		kind     writeKind
		value    string
		expects  uint64
		revision uint64
		err      error
	}
	for name, test := range map[string]struct {
		steps []step
		read  bool
		ok    bool
	}{
		"one after the other":          {ok: true, steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 2, nil}, {deletes, "", 2, 0, nil}, {creates, "c", 0, 4, nil}}},
		"conflicts":                    {ok: true, steps: []step{{creates, "a", 0, 1, nil}, {creates, "b", 0, 0, conflict}, {updates, "c", 5, 0, conflict}, {deletes, "", 5, 0, conflict}}},
		"two of the same revision":     {steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 2, nil}, {updates, "c", 1, 3, nil}}},
		"made twice":                   {steps: []step{{creates, "a", 0, 1, nil}, {creates, "b", 0, 2, nil}}},
		"a conflict with nothing":      {steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 0, conflict}}},
		"a delete that was not done":   {steps: []step{{creates, "a", 0, 1, nil}, {deletes, "", 1, 0, nil}, {updates, "b", 1, 3, nil}}},
		"an error, and it was done":    {ok: true, read: true, steps: []step{{creates, "a", 0, 1, nil}, {updates, "x", 1, 0, lost}, {updates, "c", 1, 0, conflict}}},
		"a delete that may be done":    {ok: true, steps: []step{{creates, "a", 0, 1, nil}, {deletes, "", 1, 0, lost}, {updates, "b", 1, 0, conflict}, {creates, "c", 0, 4, nil}}},
		"a delete that may not be":     {ok: true, steps: []step{{creates, "a", 0, 1, nil}, {deletes, "", 1, 0, lost}, {updates, "b", 1, 2, nil}}},
		"an error, and it was not":     {ok: true, steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 0, lost}, {updates, "c", 1, 3, nil}}},
		"a conflict with what is lost": {steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 0, lost}, {updates, "c", 1, 0, conflict}, {updates, "d", 1, 3, nil}}},
		"a conflict with what was":     {steps: []step{{creates, "a", 0, 1, nil}, {updates, "b", 1, 0, lost}, {updates, "c", 1, 3, nil}, {updates, "d", 3, 0, conflict}}},
		"an error, done, and replaced": {read: true, steps: []step{{creates, "a", 0, 1, nil}, {updates, "x", 1, 0, lost}, {updates, "c", 1, 3, nil}}},
		"an error, and it was seen":    {ok: true, read: true, steps: []step{{creates, "x", 0, 0, lost}, {updates, "b", 9, 10, nil}}},
		"read and not written":         {read: true, steps: []step{{creates, "a", 0, 1, nil}}},
		"one value with two revisions": {read: true, steps: []step{{creates, "x", 0, 1, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHistory()
				answers := &careless{}
				r := h.Record(answers)
				for _, s := range test.steps {
					answers.revision, answers.err = s.revision, s.err
					switch s.kind {
					case creates:
						_, _ = r.Create(t.Context(), "k", []byte(s.value))
					case updates:
						_, _ = r.Update(t.Context(), "k", []byte(s.value), s.expects)
					case deletes:
						_ = r.Delete(t.Context(), "k", s.expects)
					}
					time.Sleep(time.Second)
				}
				if test.read {
					_, _ = r.Get(t.Context(), "k")
				}
				if err := h.verdict(); test.ok {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
				}
			})
		})
	}
}
