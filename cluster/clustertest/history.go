package clustertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// History notes the writes of records, through any number of processes, to find out whether they are linearizable: whether
// there is an order of them, in which no write comes before one that had ended when it began, such that each did what it said. Values must differ
// from each other.
type History struct {
	mu      sync.Mutex
	start   time.Time
	clients int
	writes  []porcupine.Operation
	read    map[string]map[uint64]string // values of revisions, by key
}

// NewHistory returns an empty one.
func NewHistory() *History {
	return &History{start: time.Now(), read: map[string]map[uint64]string{}}
}

type writeKind int

const (
	creates writeKind = iota
	updates
	deletes
)

// write is one of a history.
type write struct {
	kind    writeKind
	key     string
	value   string
	expects uint64
}

// outcome is what a write said.
type outcome struct {
	revision uint64 // 0 if it is not known
	conflict bool
	unknown  bool // whether it was done
}

// Record returns r, with its writes noted. It is for one goroutine.
func (h *History) Record(r cluster.Records) cluster.Records {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients++
	return &recorded{Records: r, h: h, client: h.clients}
}

type recorded struct {
	cluster.Records
	h      *History
	client int
}

func (r *recorded) Get(ctx context.Context, key string) (cluster.Record, error) {
	got, err := r.Records.Get(ctx, key)
	if err == nil {
		r.h.saw(key, got.Revision, string(got.Value))
	}
	return got, err
}

func (r *recorded) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return r.note(write{kind: creates, key: key, value: string(value)}, func() (uint64, error) { return r.Records.Create(ctx, key, value) })
}

func (r *recorded) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return r.note(write{kind: updates, key: key, value: string(value), expects: revision}, func() (uint64, error) {
		return r.Records.Update(ctx, key, value, revision)
	})
}

func (r *recorded) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := r.note(write{kind: deletes, key: key, expects: revision}, func() (uint64, error) {
		return 0, r.Records.Delete(ctx, key, revision)
	})
	return err
}

func (r *recorded) note(w write, do func() (uint64, error)) (uint64, error) {
	began := r.h.now()
	revision, err := do()
	o := outcome{revision: revision, conflict: errors.Is(err, cluster.ErrConflict)}
	o.unknown = err != nil && !o.conflict
	op := porcupine.Operation{ClientId: r.client, Input: w, Call: began, Output: o, Return: r.h.now()}
	r.h.mu.Lock()
	r.h.writes = append(r.h.writes, op)
	r.h.mu.Unlock()
	if err == nil && w.kind != deletes {
		r.h.saw(w.key, revision, w.value)
	}
	return revision, err
}

func (h *History) now() int64 { return int64(time.Since(h.start)) }

func (h *History) saw(key string, revision uint64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read[key] == nil {
		h.read[key] = map[uint64]string{}
	}
	if was, ok := h.read[key][revision]; ok && was != value {
		value = was + " and " + value // which nobody wrote
	}
	h.read[key][revision] = value
}

// Check fails the test if there is no such order, or if something was read that nobody wrote.
func (h *History) Check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	revisions := map[string]map[string]uint64{} // of values, by key
	for key, read := range h.read {
		revisions[key] = map[string]uint64{}
		for revision, value := range read {
			require.NotContains(t, revisions[key], value, "one value, two revisions")
			revisions[key][value] = revision
		}
	}
	written := map[string]map[string]bool{}
	for i := range h.writes {
		op := &h.writes[i]
		w, o := op.Input.(write), op.Output.(outcome)
		if o.unknown {
			// If it was done, and seen, that tells its revision. It may have been done at any time since.
			o.revision = revisions[w.key][w.value]
			op.Output, op.Return = o, int64(time.Since(h.start))
		}
		if written[w.key] == nil {
			written[w.key] = map[string]bool{}
		}
		written[w.key][w.value] = true
	}
	for key, read := range h.read {
		for _, value := range read {
			require.True(t, written[key][value], "%s: %q was read and not written", key, value)
		}
	}
	result, _ := porcupine.CheckOperationsVerbose(model.ToModel(), h.writes, time.Minute)
	require.Equal(t, porcupine.Ok, result, "%d writes are not linearizable", len(h.writes))
}

// model is one record: its revision, 0 if there is none. What was done, although nobody heard of it and saw it, has a revision
// that nobody can expect.
var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(write).key
			by[key] = append(by[key], op)
		}
		parts := [][]porcupine.Operation{}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, output any) []any {
		now, w, o := state.(uint64), input.(write), output.(outcome)
		fits := now != 0 && now == w.expects
		if w.kind == creates {
			fits = now == 0
		}
		next := o.revision
		switch {
		case w.kind == deletes:
			next = 0
		case next == 0:
			next = unseen
		}
		switch {
		case o.conflict && fits, !o.conflict && !o.unknown && !fits:
			return nil
		case o.conflict, o.unknown && !fits:
			return []any{now}
		case o.unknown:
			return []any{now, next}
		default:
			return []any{next}
		}
	},
	Equal: func(a, b any) bool { return a.(uint64) == b.(uint64) },
}

// unseen is the revision of what nobody saw.
const unseen = ^uint64(0)
