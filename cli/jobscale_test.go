package cli

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// carryOut takes up the wish that is there, as a controller would, and lets it end in a while.
func (b *bench) carryOut(id string, phase cluster.ScalePhase, why string) {
	b.t.Helper()
	time.Sleep(time.Second)
	r, err := b.m.records.Get(b.t.Context(), cluster.ScaleKey(id))
	require.NoError(b.t, err)
	w, err := cluster.DecodeScaleWish(r.Value)
	require.NoError(b.t, err)
	began := time.Now()
	b.change(id, func(j *cluster.Job) {
		j.Scaling = &cluster.Scaling{ScaleWish: *w, Phase: cluster.ScaleFreeze, Former: j.Spec.Operators[1].Workers, Round: 1, Since: began}
	})
	require.NoError(b.t, b.m.records.Delete(b.t.Context(), r.Key, r.Revision))
	time.Sleep(time.Second)
	b.change(id, func(j *cluster.Job) {
		if phase == cluster.ScaleDone {
			j.Divide()
		}
		j.Scaling.Phase, j.Scaling.Why, j.Scaling.Ended = phase, why, time.Now()
	})
}

// TestScale waits for what becomes of it, and says so.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.must("job", "submit", "wordcount", "--id", "wc", "--workers", "2")
		b.change("wc", func(j *cluster.Job) { j.State = cluster.Running })
		go b.carryOut("wc", cluster.ScaleDone, "")
		require.Equal(t, "operator count has 4 workers, after 2, since a change that took 1.0 s\n", b.must("job", "scale", "wc", "count=4"))
		require.Contains(t, b.must("job", "inspect", "wc"), "\noperator count has 4 workers, after 2, since a change that took 1.0 s\n\n")
		require.Contains(t, b.must("job", "inspect", "wc"), "count/3")

		go b.carryOut("wc", cluster.ScaleRefused, "it takes 4 more free slots on nodes that carry the program, and there are 1")
		require.Equal(t, "job wc: operator \"count\" has 4 workers as before: it takes 4 more free slots on nodes that carry the program, and there are 1",
			b.refused("job", "scale", "wc", "count=8"))

		go b.carryOut("wc", cluster.ScaleDone, "")
		var v scaleView
		require.NoError(t, json.Unmarshal([]byte(b.must("job", "scale", "-o", "json", "wc", "count=1")), &v))
		require.InDelta(t, 1, v.Seconds, 0.01)
		v.Seconds = 0
		require.Equal(t, scaleView{Job: "wc", Operator: "count", Workers: 1, Former: 4, Phase: cluster.ScaleDone}, v)

		require.Equal(t, "operator count of job wc is to have 3 workers\n", b.must("job", "scale", "--detach", "wc", "count=3"))
		require.Contains(t, b.refused("job", "scale", "wc", "count=5"), "another number of workers was asked for just now")
		go func() {
			time.Sleep(500 * time.Millisecond)
			require.Contains(t, b.must("job", "inspect", "wc"), "\noperator count is being given 3 workers, after 1: freezing\n")
		}()
		go b.carryOut("wc", cluster.ScaleDone, "")
		time.Sleep(1500 * time.Millisecond)
		require.Contains(t, b.refused("job", "scale", "wc", "count=5"), `operator "count" is being given 3 workers: wait until that is done`)
		time.Sleep(2 * time.Second)

		go func() {
			time.Sleep(time.Second)
			b.change("wc", func(j *cluster.Job) { j.State = cluster.Cancelled })
		}()
		require.Equal(t, "job wc has ended: it is cancelled", b.refused("job", "scale", "wc", "count=5"))
		_, err := b.m.records.Get(t.Context(), cluster.ScaleKey("wc"))
		require.NoError(t, err)
		b.must("job", "delete", "wc")
		_, err = b.m.records.Get(t.Context(), cluster.ScaleKey("wc"))
		require.ErrorIs(t, err, cluster.ErrNoRecord, "the next job of that name has nothing to do with it")
	})
}

// TestScaleRefused says what is in the way before anything is wished.
func TestScaleRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.must("job", "submit", "wordcount", "--id", "wc", "--workers", "2")
		for args, why := range map[[2]string]string{
			{"wcc", "count=3"}:   `cluster "test" has no job "wcc"`,
			{"wc", "cuont=3"}:    `job wc: there is no operator "cuont": did you mean "count"?`,
			{"wc", "zzzzzzz=3"}:  `job wc: there is no operator "zzzzzzz": there are `,
			{"wc", "count=0"}:    `job wc: operator "count" needs at least one worker, not 0`,
			{"wc", "count=-1"}:   `at least one worker, not -1`,
			{"wc", "count=2"}:    `job wc: operator "count" has 2 workers already`,
			{"wc", "count=9999"}: `operator "count" can have 1024 workers of 1 goroutines at most, not 9999`,
			{"wc", "count=two"}:  `"count=two": want OPERATOR=N`,
			{"wc", "=2"}:         `"=2": want OPERATOR=N`,
			{"wc", "text=2"}:     `job wc: operator "text" is a source`,
		} {
			require.Contains(t, b.refused("job", "scale", args[0], args[1]), why)
		}
		_, err := b.m.records.Get(t.Context(), cluster.ScaleKey("wc"))
		require.ErrorIs(t, err, cluster.ErrNoRecord)
		b.change("wc", func(j *cluster.Job) { j.State = cluster.Finished })
		require.Equal(t, "job wc: the job has ended: it is finished", b.refused("job", "scale", "wc", "count=3"))
	})
}
