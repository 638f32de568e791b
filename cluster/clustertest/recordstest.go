package clustertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// Pair calls test with what two processes have of one cluster that nobody has used before, in a bubble of testing/synctest
// or not.
type Pair[T any] func(t *testing.T, test func(t *testing.T, one, other T))

// testTime is what a test may take.
const testTime = 30 * time.Second

// TestRecords checks what any cluster.Records must do, on a network without faults.
func TestRecords(t *testing.T, with Pair[cluster.Records]) {
	for name, test := range map[string]func(t *testing.T, one, other cluster.Records){
		"reads what was written":      recordsAreRead,
		"compares revisions":          recordsCompare,
		"begins again after a delete": recordsBeginAgain,
		"lists by prefix":             recordsAreListed,
		"watches":                     recordsAreWatched,
		"watches nothing":             recordsWatchNothing,
		"heeds contexts":              recordsHeedContexts,
		"races":                       recordsRace,
	} {
		t.Run(name, func(t *testing.T) { with(t, test) })
	}
}

func within(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(stop)
	return ctx
}

func recordsAreRead(t *testing.T, one, other cluster.Records) {
	ctx := within(t)
	_, err := one.Get(ctx, "a")
	require.ErrorIs(t, err, cluster.ErrNoRecord)
	value := []byte("first")
	first, err := one.Create(ctx, "a", value)
	require.NoError(t, err)
	value[0] = 'x' // it is the caller's again
	got, err := other.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, cluster.Record{Key: "a", Value: []byte("first"), Revision: first}, got)
	second, err := other.Update(ctx, "a", nil, first)
	require.NoError(t, err)
	require.Greater(t, second, first)
	got, err = one.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, cluster.Record{Key: "a", Value: []byte{}, Revision: second}, got, "an empty value is none that was deleted")
	big := []byte(strings.Repeat("x", 500_000))
	third, err := one.Update(ctx, "a", big, second)
	require.NoError(t, err)
	got, err = other.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, third, got.Revision)
	require.Len(t, got.Value, len(big))
}

func recordsCompare(t *testing.T, one, other cluster.Records) {
	ctx := within(t)
	conflict := func(_ uint64, err error) {
		t.Helper()
		require.ErrorIs(t, err, cluster.ErrConflict)
	}
	conflict(one.Update(ctx, "a", []byte("x"), 1))
	conflict(one.Update(ctx, "a", []byte("x"), 0))
	conflict(0, one.Delete(ctx, "a", 1))
	conflict(0, one.Delete(ctx, "a", 0))
	first, err := one.Create(ctx, "a", []byte("a"))
	require.NoError(t, err)
	conflict(other.Create(ctx, "a", []byte("x")))
	conflict(other.Update(ctx, "a", []byte("x"), first+1))
	conflict(other.Update(ctx, "a", []byte("x"), 0))
	conflict(0, other.Delete(ctx, "a", first+1))
	conflict(0, other.Delete(ctx, "a", 0))
	second, err := other.Update(ctx, "a", []byte("b"), first)
	require.NoError(t, err)
	conflict(one.Update(ctx, "a", []byte("x"), first))
	conflict(0, one.Delete(ctx, "a", first))
	got, err := one.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, cluster.Record{Key: "a", Value: []byte("b"), Revision: second}, got)
}

func recordsBeginAgain(t *testing.T, one, other cluster.Records) {
	ctx := within(t)
	first, err := one.Create(ctx, "a", []byte("a"))
	require.NoError(t, err)
	require.NoError(t, other.Delete(ctx, "a", first))
	_, err = one.Get(ctx, "a")
	require.ErrorIs(t, err, cluster.ErrNoRecord)
	_, err = one.Update(ctx, "a", []byte("x"), first)
	require.ErrorIs(t, err, cluster.ErrConflict)
	require.ErrorIs(t, one.Delete(ctx, "a", first), cluster.ErrConflict)
	again, err := one.Create(ctx, "a", []byte("b"))
	require.NoError(t, err)
	require.Greater(t, again, first)
	_, err = other.Update(ctx, "a", []byte("x"), first)
	require.ErrorIs(t, err, cluster.ErrConflict, "the revision of a former life")
}

func recordsAreListed(t *testing.T, one, other cluster.Records) {
	ctx := within(t)
	list, err := other.List(ctx, "")
	require.NoError(t, err)
	require.Empty(t, list)
	var want []cluster.Record
	for _, key := range []string{"job.b", "node.x", "job.a", "leader", "wish.cancel.a", "job.A-_1"} {
		revision, err := one.Create(ctx, key, []byte(key))
		require.NoError(t, err)
		want = append(want, cluster.Record{Key: key, Value: []byte(key), Revision: revision})
	}
	gone, err := one.Create(ctx, "job.gone", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, one.Delete(ctx, "job.gone", gone))
	for prefix, indices := range map[string][]int{
		"": {5, 2, 0, 3, 1, 4}, "job.": {5, 2, 0}, "job.a": {2}, "jo": {5, 2, 0}, "leader": {3}, "wish.cancel.": {4}, "wish.cancel.a": {4}, "none.": {},
	} {
		list, err := other.List(ctx, prefix)
		require.NoError(t, err)
		expected := []cluster.Record{}
		for _, i := range indices {
			expected = append(expected, want[i])
		}
		require.Equal(t, expected, list, "prefix %q", prefix)
	}
}

// watched is what a watch has told.
type watched struct {
	mu     sync.Mutex
	values map[string]string // what there is
	last   map[string]uint64
	synced map[string]string // what there was then
	fault  string
	ended  error
	stop   func()
	done   chan struct{}
}

func watch(t *testing.T, r cluster.Records, prefix string) *watched {
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{values: map[string]string{}, last: map[string]uint64{}, stop: stop, done: make(chan struct{})}
	go func() { // ends with the context
		defer close(w.done)
		w.ended = r.Watch(ctx, prefix, w.changed(prefix), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.synced != nil {
				w.fault = "synced twice"
			}
			w.synced = map[string]string{}
			for k, v := range w.values {
				w.synced[k] = v
			}
		})
	}()
	t.Cleanup(w.end)
	return w
}

func (w *watched) end() {
	w.stop()
	<-w.done
}

func (w *watched) changed(prefix string) func(r cluster.Record) {
	return func(r cluster.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case !strings.HasPrefix(r.Key, prefix):
			w.fault = fmt.Sprintf("told of %s", r.Key)
		case r.Revision <= w.last[r.Key]:
			w.fault = fmt.Sprintf("told of revision %d of %s after %d", r.Revision, r.Key, w.last[r.Key])
		case r.Value == nil && w.last[r.Key] == 0 && w.synced == nil:
			w.fault = fmt.Sprintf("told that %s was deleted, of which it had not told", r.Key)
		}
		w.last[r.Key] = r.Revision
		w.values[r.Key] = string(r.Value)
		if r.Value == nil {
			delete(w.values, r.Key)
		}
	}
}

// eventually waits until that is what there is.
func (w *watched) eventually(t *testing.T, want map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.synced != nil && fmt.Sprint(w.values) == fmt.Sprint(want)
	}, testTime, 5*time.Millisecond, "%v", want)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.fault)
}

func recordsAreWatched(t *testing.T, one, other cluster.Records) {
	ctx := within(t)
	want, revisions := map[string]string{}, map[string]uint64{}
	put := func(key, value string) {
		t.Helper()
		r, err := uint64(0), error(nil)
		if _, there := want[key]; there {
			r, err = one.Update(ctx, key, []byte(value), revisions[key])
		} else {
			r, err = one.Create(ctx, key, []byte(value))
		}
		require.NoError(t, err)
		if strings.HasPrefix(key, "job.") {
			want[key], revisions[key] = value, r
		}
	}
	remove := func(key string) {
		t.Helper()
		require.NoError(t, one.Delete(ctx, key, revisions[key]))
		delete(want, key)
	}
	put("job.a", "1")
	put("job.b", "1")
	put("job.b", "2")
	put("job.gone", "1")
	remove("job.gone")
	put("node.a", "1")
	w := watch(t, other, "job.")
	w.eventually(t, want)
	require.Equal(t, want, w.synced, "what there was at the start")
	put("job.c", "1")
	put("job.a", "2")
	put("node.b", "1")
	put("jobs", "1")
	w.eventually(t, want)
	remove("job.b")
	w.eventually(t, want)
	put("job.b", "again")
	for i := range 300 {
		put(fmt.Sprintf("job.many%d", i%7), fmt.Sprint(i))
	}
	late := watch(t, one, "job.")
	w.eventually(t, want)
	late.eventually(t, want)
	w.end()
	require.NoError(t, w.ended, "a context's end is no error")
}

func recordsWatchNothing(t *testing.T, one, other cluster.Records) {
	w := watch(t, other, "job.")
	w.eventually(t, map[string]string{})
	_, err := one.Create(within(t), "job.a", []byte("1"))
	require.NoError(t, err)
	w.eventually(t, map[string]string{"job.a": "1"})
}

func recordsHeedContexts(t *testing.T, one, _ cluster.Records) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, err := range []error{
		func() error { _, err := one.Get(ctx, "a"); return err }(),
		func() error { _, err := one.List(ctx, "a"); return err }(),
		func() error { _, err := one.Create(ctx, "a", nil); return err }(),
	} {
		if err != nil { // it may have been faster
			require.NotErrorIs(t, err, cluster.ErrConflict)
		}
	}
	require.NoError(t, one.Watch(ctx, "a", func(cluster.Record) {}, func() {}))
}

// recordsRace: many goroutines write two records through two processes, and the writes are linearizable.
func recordsRace(t *testing.T, one, other cluster.Records) {
	h := NewHistory()
	var all sync.WaitGroup
	for i := range 8 {
		r := h.Record([]cluster.Records{one, other}[i%2])
		all.Go(func() { Compete(within(t), r, i, 40) })
	}
	all.Wait()
	LookAgain(within(t), h.Record(other))
	h.Check(t)
}

// LookAgain reads what Compete writes.
func LookAgain(ctx context.Context, r cluster.Records) {
	for i := range 2 {
		_, _ = r.Get(ctx, fmt.Sprintf("job.%d", i)) // the history has it
	}
}

// Compete writes and deletes two records, times times, as others do under other numbers, going by what it reads or has written.
func Compete(ctx context.Context, r cluster.Records, who, times int) {
	for i := range times {
		key := fmt.Sprintf("job.%d", i%2)
		value := fmt.Appendf(nil, "%d by %d", i, who)
		got, err := r.Get(ctx, key)
		switch {
		case err != nil:
			_, _ = r.Create(ctx, key, value) // the history has what became of it
		case i%8 == who:
			_ = r.Delete(ctx, key, got.Revision)
		default:
			revision, err := r.Update(ctx, key, value, got.Revision)
			if err == nil && i%3 == 0 {
				_, _ = r.Update(ctx, key, append(value, " again"...), revision)
			}
		}
	}
}
