package overnats

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/internal/thorough"
)

// pair runs a test with two connections to a server that is new.
func pair[T any](of func(*Fabric) T) clustertest.Pair[T] {
	return func(t *testing.T, test func(t *testing.T, one, other T)) {
		t.Parallel() // it waits more than it works
		s := serve(t, "0", t.TempDir())
		test(t, of(open(t, s)), of(open(t, s)))
	}
}

func TestConformance(t *testing.T) {
	clustertest.TestRecords(t, pair(func(f *Fabric) cluster.Records { return f }))
	clustertest.TestMessages(t, pair(func(f *Fabric) cluster.Messages { return f }))
	clustertest.TestLogs(t, pair(func(f *Fabric) cluster.Logs { return f }))
}

// TestOpen: several at once, without JetStream, with more copies than servers, and with a name that is none.
func TestOpen(t *testing.T) {
	t.Parallel()
	s := serve(t, "0", t.TempDir())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			f, err := Open(t.Context(), connect(t, s), "test", 1)
			if err == nil {
				_, err = f.Create(t.Context(), fmt.Sprintf("job.%d", i), nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := open(t, s).List(t.Context(), cluster.JobPrefix)
	require.NoError(t, err)
	require.Len(t, list, 8)

	_, err = Open(t.Context(), connect(t, s), "test", 3)
	require.NoError(t, err, "what is there stays as it is")
	_, err = Open(t.Context(), connect(t, s), "other", 3)
	require.ErrorContains(t, err, "add servers or ask for fewer")
	_, err = Open(t.Context(), connect(t, s), "a.b", 1)
	require.ErrorIs(t, err, cluster.ErrName)
	_, err = Open(t.Context(), connect(t, serve(t, "0", "")), "test", 1)
	require.ErrorContains(t, err, "start it with JetStream (nats-server -js)")
}

// told is the last value that a watch has told of a key.
type told struct {
	mu     sync.Mutex
	values map[string]string
}

func (w *told) watch(t *testing.T, f *Fabric) (end func() error) {
	w.values = map[string]string{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // ends with the context
		done <- f.Watch(ctx, "", func(r cluster.Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.values[r.Key] = string(r.Value)
		}, func() {})
	}()
	t.Cleanup(stop)
	return func() error {
		stop()
		return <-done
	}
}

func (w *told) eventually(t *testing.T, key, value string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.values[key] == value
	}, 20*time.Second, 10*time.Millisecond, "%s=%s", key, value)
}

// TestServerIsStartedAgain: records, logs and watches go on with a server that comes back on its store.
func TestServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, "0", dir)
	f, other := open(t, s), open(t, s)
	ctx := t.Context()
	revision, err := f.Create(ctx, "job.a", []byte("1"))
	require.NoError(t, err)
	gone, err := f.Create(ctx, "job.gone", []byte("1"))
	require.NoError(t, err)
	require.NoError(t, f.Append("a", cluster.Line{Text: "before"}))
	var w told
	end := w.watch(t, f)
	w.eventually(t, "job.a", "1")
	w.eventually(t, "job.gone", "1")

	var lines []string
	logs, stopLogs := context.WithCancel(ctx)
	read := make(chan error, 1)
	heard := make(chan string, 10)
	go func() { // ends with the context
		read <- f.Read(logs, "a", true, func(l cluster.Line) error {
			heard <- l.Text
			return nil
		})
	}()
	lines = append(lines, <-heard)

	for range 2 {
		at := address(s)
		s.Close()
		late, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err = f.Update(late, "job.a", []byte("lost"), revision)
		stop()
		require.Error(t, err)
		require.NotErrorIs(t, err, cluster.ErrConflict)
		require.Error(t, f.Publish("x", nil), "what is not sent now is not kept")
		s = serve(t, at, dir)
	}
	require.Eventually(t, func() bool {
		got, err := other.Get(ctx, "job.a")
		if err != nil {
			return false
		}
		revision, err = other.Update(ctx, "job.a", []byte("2"), got.Revision)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, other.Delete(ctx, "job.gone", gone))
	w.eventually(t, "job.a", "2")
	w.eventually(t, "job.gone", "")
	require.NoError(t, other.Append("a", cluster.Line{Text: "after"}))
	lines = append(lines, <-heard)
	require.Equal(t, []string{"before", "after"}, lines)
	stopLogs()
	require.NoError(t, <-read)
	require.NoError(t, end())
}

// TestRaceThroughRestarts: writes are linearizable, also those that the server's end has interrupted.
func TestRaceThroughRestarts(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, "0", dir)
	h := clustertest.NewHistory()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	var all sync.WaitGroup
	for i := range 4 {
		r := h.Record(&hasty{Fabric: open(t, s)})
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				clustertest.Compete(ctx, r, i+4*n, 10)
			}
		})
	}
	for ctx.Err() == nil {
		time.Sleep(300 * time.Millisecond) // of work
		at := address(s)
		s.Close()
		s = serve(t, at, dir)
	}
	all.Wait()
	last := &hasty{Fabric: open(t, s)}
	clustertest.LookAgain(t.Context(), h.Record(last))
	h.Check(t)
}

// hasty gives a server that does not answer up soon.
type hasty struct{ *Fabric }

func (h *hasty) Get(ctx context.Context, key string) (cluster.Record, error) {
	ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	return h.Fabric.Get(ctx, key)
}

func (h *hasty) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	return h.Fabric.Create(ctx, key, value)
}

func (h *hasty) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	return h.Fabric.Update(ctx, key, value, revision)
}

func (h *hasty) Delete(ctx context.Context, key string, revision uint64) error {
	ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	return h.Fabric.Delete(ctx, key, revision)
}

// TestMissedChanges: what changes while a process cannot be reached by the server is told afterwards, deletions too.
func TestMissedChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, "0", t.TempDir())
	f, other := open(t, s), open(t, s)
	ctx := t.Context()
	revisions := map[string]uint64{}
	for _, key := range []string{"a", "b"} {
		var err error
		revisions[key], err = other.Create(ctx, key, []byte("1"))
		require.NoError(t, err)
	}
	var w told
	end := w.watch(t, f)
	w.eventually(t, "b", "1")
	for i := range 20 {
		require.NoError(t, f.nc.ForceReconnect())
		var err error
		revisions["a"], err = other.Update(ctx, "a", fmt.Append(nil, i), revisions["a"])
		require.NoError(t, err)
	}
	require.NoError(t, other.Delete(ctx, "b", revisions["b"]))
	w.eventually(t, "a", "19")
	w.eventually(t, "b", "")
	require.NoError(t, end())
}

// TestReplaced: a watch does not go on in a bucket that was made anew.
func TestReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t, "0", t.TempDir())
	f := open(t, s)
	_, err := f.Create(t.Context(), "a", []byte("1"))
	require.NoError(t, err)
	done := make(chan error, 1)
	synced := make(chan struct{})
	go func() { done <- f.Watch(t.Context(), "", func(cluster.Record) {}, func() { close(synced) }) }()
	<-synced
	require.NoError(t, f.js.DeleteKeyValue(t.Context(), f.records))
	open(t, s)
	require.ErrorIs(t, <-done, errReplaced)
}

// TestMarkersGo: a deletion leaves a marker that the server removes, and none that a list shows.
func TestMarkersGo(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, "0", t.TempDir()))
	require.True(t, f.markers)
	revision, err := f.Create(t.Context(), "a", []byte("1"))
	require.NoError(t, err)
	require.NoError(t, f.Delete(t.Context(), "a", revision))
	stream, err := f.js.Stream(t.Context(), "KV_"+f.records)
	require.NoError(t, err)
	m, err := stream.GetLastMsgForSubject(t.Context(), "$KV."+f.records+".a")
	require.NoError(t, err)
	require.Equal(t, "1h0m0s", m.Header.Get(jetstream.MsgTTLHeader))
}

// TestLogIsBounded: of each job the last lines stay.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, "0", t.TempDir()))
	const more = 100
	require.NoError(t, f.Append("few", cluster.Line{Text: "first"}))
	for i := range linesPerJob + more {
		require.NoError(t, f.Append("many", cluster.Line{Text: fmt.Sprint(i)}))
	}
	require.NoError(t, f.Publish(f.subjects.Log("many"), []byte("no line")))
	read := func(job string) (texts []string) {
		require.NoError(t, f.Read(t.Context(), job, false, func(l cluster.Line) error {
			texts = append(texts, l.Text)
			return nil
		}))
		return texts
	}
	require.Eventually(t, func() bool {
		texts := read("many")
		return len(texts) > 0 && texts[len(texts)-1] == fmt.Sprint(linesPerJob+more-1)
	}, 20*time.Second, 10*time.Millisecond)
	texts := read("many")
	require.InDelta(t, linesPerJob, len(texts), 1)
	require.Equal(t, []string{"first"}, read("few"))
}
