package job

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// readyJob runs a job whose engine was changed by set, and returns its report as JSON, "" if there is none.
type readyJob func(ctx context.Context, set func(e *Engine)) (string, error)

func reported[A answer[V], V verification](r *Report[A, V], err error) (string, error) {
	if r == nil {
		return "", err
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		return "", err
	}
	return b.String(), err
}

func readyJobs() map[string]readyJob {
	return map[string]readyJob{
		AggregateName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultAggregate()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		DistinctName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultDistinct()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		GrepName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultGrep()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		HeavyHitterName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultHeavyHitter()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		HeavyHitterName + " by space-saving": func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultHeavyHitter()
			j.Method = SpaceSaving
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		HistogramName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultHistogram()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		JoinName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultJoin()
			j.Flights = 2000
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		LogisticRegressionName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultLogisticRegression()
			j.Workers, j.Examples = 1, 5000
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		SampleName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultSample()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
		WordCountName: func(ctx context.Context, set func(e *Engine)) (string, error) {
			j := DefaultWordCount()
			set(&j.Engine)
			return reported(j.Run(ctx))
		},
	}
}

// recordOf is what a cluster would have of a run.
func recordOf(t *testing.T, b *Blueprint, r *controller.Result) *cluster.Job {
	t.Helper()
	operators, err := b.Operators()
	require.NoError(t, err)
	started := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	j := cluster.NewJob("id", cluster.Spec{Name: b.Topology.Name(), Operators: operators}, started)
	j.State, j.Started, j.Ended = cluster.Finished, started, started.Add(2*time.Second)
	for i := range j.Workers {
		j.Workers[i].Epoch = 1
	}
	for _, f := range r.Failures {
		w := j.Worker(f.Operator, f.Worker)
		w.Fail()
		w.Epoch++
		j.Note(cluster.Incident{Operator: f.Operator, Worker: f.Worker, Epoch: f.Epoch, Failure: true, AtItem: f.AtItem})
	}
	first := true
	for i, o := range operators {
		w := j.Worker(o.Name, 0)
		w.Past.Items, w.Past.StateCommits = r.Operators[i].Items, r.Operators[i].StateCommits
		if o.Source && first {
			w.Past.Read, first = r.Items, false
		}
	}
	j, err = cluster.DecodeJob(j.Encode())
	require.NoError(t, err)
	return j
}

// TestJobsAreRunElsewhere: what a job has built can be run by others, through failures, with its results in a vault; the
// same job reports them from there as if it had run them itself, and verifies them.
func TestJobsAreRunElsewhere(t *testing.T) {
	for name, run := range readyJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local, err := run(t.Context(), func(*Engine) {})
			require.NoError(t, err)
			for _, failures := range []int{0, 4} {
				var b *Blueprint
				settings := func(r Runner, verify bool) func(e *Engine) {
					return func(e *Engine) { e.Runner, e.Verify = r, verify }
				}
				report, err := run(t.Context(), settings(Capture(&b), false))
				require.ErrorIs(t, err, ErrCaptured)
				require.Empty(t, report)
				require.Equal(t, worker.Approximate, b.Guarantee)
				require.False(t, b.Pipe)

				store := backup.NewMemory()
				defer store.Close()
				vault := backup.ResultsOf(store, "job", "1")
				b.Keep(vault)
				nodes, err := b.Topology.Build()
				require.NoError(t, err)
				result, err := controller.RunLocal(t.Context(), b.Topology, controller.Options{
					Guarantee: b.Guarantee, Params: b.Params, Batch: b.Batch, Store: store,
					Faults: controller.RandomFaults(nodes, failures, 7),
				})
				require.NoError(t, err)

				record := recordOf(t, b, result)
				report, err = run(t.Context(), settings(Recalled(vault, ResultOf(record)), true))
				require.NoError(t, err)
				var got, want struct {
					Items    uint64
					Seconds  float64
					Result   json.RawMessage
					Failures []Failure
					Verify   *struct{ Kept bool }
				}
				require.NoError(t, json.Unmarshal([]byte(report), &got))
				require.NoError(t, json.Unmarshal([]byte(local), &want))
				require.Equal(t, want.Items, got.Items)
				require.Equal(t, 2.0, got.Seconds)
				require.Len(t, got.Failures, len(result.Failures))
				require.True(t, got.Verify.Kept)
				if failures == 0 && name != LogisticRegressionName && name != SampleName {
					require.JSONEq(t, string(want.Result), string(got.Result))
				}
			}
		})
	}
}

func TestResultOfARecord(t *testing.T) {
	j := cluster.NewJob("id", cluster.Spec{Operators: []cluster.Operator{
		{Name: "in", Workers: 2, Compute: 1, Source: true}, {Name: "out", Workers: 1, Compute: 1, Sink: true},
	}}, time.Now())
	require.Equal(t, &controller.Result{Interrupted: true, Operators: []controller.OperatorResult{{Name: "in"}, {Name: "out"}}}, ResultOf(j))
	j.State = cluster.Finished
	j.Workers[0].Past = cluster.Counters{Read: 5, Items: 7, Nanoseconds: 1e9}
	j.Workers[1].Past = cluster.Counters{Read: 6, Items: 6}
	j.Workers[2].Failures = 3
	j.Note(cluster.Incident{Operator: "out", Epoch: 3, Failure: true, AtItem: 9})
	j.Note(cluster.Incident{Operator: "out", Epoch: 4, What: "moved"})
	r := ResultOf(j)
	require.Equal(t, uint64(11), r.Items)
	require.Equal(t, controller.OperatorResult{Name: "in", Items: 13, Seconds: 1}, r.Operators[0])
	forgotten := controller.Failure{Operator: "out"}
	require.Equal(t, []controller.Failure{forgotten, forgotten, {Operator: "out", Epoch: 3, AtItem: 9}}, r.Failures)
}

// RunTopology runs topologies of others as ready jobs are run.
func TestRunTopology(t *testing.T) {
	var out connector.Collector[int]
	topology := func() *stream.Topology {
		top := stream.New("own")
		stream.To(stream.From(top, "in", connector.Slice([]int{1, 2, 3})), "out", connector.Collect(&out))
		return top
	}
	e := DefaultGrep().Engine
	r, err := e.RunTopology(t.Context(), topology(), map[string]Results{"out": &out})
	require.NoError(t, err)
	require.Equal(t, uint64(3), r.Items)
	require.Equal(t, []int{1, 2, 3}, out.Items())

	var b *Blueprint
	e.Runner = Capture(&b)
	_, err = e.RunTopology(t.Context(), topology(), map[string]Results{"out": &out})
	require.ErrorIs(t, err, ErrCaptured)
	operators, err := b.Operators()
	require.NoError(t, err)
	require.Equal(t, []cluster.Operator{{Name: "in", Workers: 1, Compute: 1, Source: true}, {Name: "out", Workers: 1, Compute: 1, Sink: true}}, operators)

	b.Topology = stream.New("empty")
	_, err = b.Operators()
	require.ErrorIs(t, err, ErrSettings)
	e.Workers = 0
	_, err = e.RunTopology(t.Context(), topology(), nil)
	require.ErrorIs(t, err, ErrSettings)
}
