package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// History notes the writes of records, through any number of processes, to find out whether they are linearizable: whether
// there is an order of them, in which no write comes before one that had ended when it began, such that each did what it said.
// Values must differ from each other. When all is over each record is to be read once more: a write that had an error
// and is not seen then or before was not done, since what nobody has seen nobody can replace. In fake time let writes
// take some: hundreds at one instant could have any order, and it takes for ever to find one.
type History struct {
	mu      sync.Mutex
	start   time.Time
	clients int
	writes  []porcupine.Operation
	read    map[string]map[uint64]seen // revisions, by key
}

// seen is a value that has been read, or written for sure.
type seen struct {
	value string
	at    int64 // the first time
}

// NewHistory returns an empty one.
func NewHistory() *History {
	return &History{start: time.Now(), read: map[string]map[uint64]seen{}}
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
		h.read[key] = map[uint64]seen{}
	}
	was, ok := h.read[key][revision]
	if !ok {
		was = seen{value, h.now()}
	}
	if was.value != value {
		was.value += " and " + value // which nobody wrote
	}
	h.read[key][revision] = was
}

// Check fails the test if there is no such order, or if something was read that nobody wrote.
func (h *History) Check(t testing.TB) {
	t.Helper()
	require.NoError(t, h.verdict())
}

func (h *History) verdict() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	written := map[[2]string]bool{} // key and value
	for _, op := range h.writes {
		w := op.Input.(write)
		written[[2]string{w.key, w.value}] = true
	}
	revisions := map[[2]string]uint64{}
	for key, read := range h.read {
		for revision, was := range read {
			id := [2]string{key, was.value}
			if !written[id] {
				return fmt.Errorf("%s: %q was read and not written", key, was.value)
			}
			if other, ok := revisions[id]; ok {
				return fmt.Errorf("%s: %q has two revisions, %d and %d", key, was.value, other, revision)
			}
			revisions[id] = revision
		}
	}
	var all []porcupine.Operation
	for _, op := range h.writes {
		w, o := op.Input.(write), op.Output.(outcome)
		switch r := revisions[[2]string{w.key, w.value}]; {
		case !o.unknown:
		case w.kind == deletes:
			op.Return = max(op.Call, h.passed(w.key, w.expects+1)) // later it cannot have been done any more
		case r == 0:
			continue
		default:
			op.Output = outcome{revision: r}
			op.Return = h.passed(w.key, r)
		}
		all = append(all, op)
	}
	for _, part := range model.Partition(all) {
		if result := check(part); result != porcupine.Ok {
			return fmt.Errorf("%d writes of %s are not linearizable: %s: %s", len(part), part[0].Input.(write).key, result, h.around(culprit(part)))
		}
	}
	return nil
}

func check(writes []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model.ToModel(), writes, time.Minute)
}

// culprit returns, of a record's writes that have no order, that without which those that began before have one.
func culprit(writes []porcupine.Operation) porcupine.Operation {
	slices.SortFunc(writes, byCall)
	last := len(writes) - 1
	for last > 0 && check(writes[:last]) == porcupine.Illegal {
		last--
	}
	return writes[last]
}

func byCall(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }

// around tells of the writes of a record, and of what was said of them, that began not long before or after one of them.
// h.mu is held.
func (h *History) around(one porcupine.Operation) string {
	const before, after = 20 * time.Millisecond, 5 * time.Millisecond
	var b strings.Builder
	fmt.Fprintf(&b, "that of client %d at %v is wrong", one.ClientId, time.Duration(one.Call))
	for _, op := range slices.SortedFunc(slices.Values(h.writes), byCall) {
		w, o := op.Input.(write), op.Output.(outcome)
		if w.key != one.Input.(write).key || op.Call < one.Call-int64(before) || op.Call > one.Return+int64(after) {
			continue
		}
		what := [...]string{creates: "creates", updates: "updates", deletes: "deletes"}[w.kind]
		said := fmt.Sprintf("revision %d", o.revision)
		switch {
		case o.conflict:
			said = "conflict"
		case o.unknown:
			said = "unknown"
		}
		fmt.Fprintf(&b, "\n%v to %v: client %d %s %q of revision %d: %s", time.Duration(op.Call), time.Duration(op.Return), op.ClientId, what, w.value, w.expects, said)
	}
	return b.String()
}

// passed is when a record was first seen with that revision or a later one. h.mu is held.
func (h *History) passed(key string, revision uint64) int64 {
	first := h.now()
	for r, was := range h.read[key] {
		if r >= revision {
			first = min(first, was.at)
		}
	}
	return first
}

// model is one record: its revision, 0 if there is none. Only of deletes it may be unknown whether they were done.
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
		switch {
		case o.conflict && fits, !o.conflict && !o.unknown && !fits:
			return nil
		case o.conflict, o.unknown && !fits:
			return []any{now}
		case o.unknown:
			return []any{now, uint64(0)}
		default:
			return []any{o.revision} // 0 after a delete
		}
	},
	Equal: func(a, b any) bool { return a.(uint64) == b.(uint64) },
}
