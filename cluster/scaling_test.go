package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// New workers have as many failures as the one had that had most, and they are forgotten no earlier.
func TestWorstFailures(t *testing.T) {
	require.Empty(t, WorstFailures())
	require.Equal(t, []uint64{3, 6, 9}, WorstFailures([]uint64{3, 5, 7}, nil, []uint64{6, 9}))
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint64Range(0, 9), 0, 5), 1, 4).Draw(rt, "failures")
		for _, at := range all {
			slices.Sort(at)
		}
		worst := WorstFailures(all...)
		require.True(rt, slices.IsSorted(worst))
		for level := range uint64(12) {
			for forget := range uint64(4) {
				remembered := func(at []uint64) (n int) {
					for _, a := range at {
						if level < a+forget {
							n++
						}
					}
					return n
				}
				most := 0
				for _, at := range all {
					most = max(most, remembered(at))
				}
				require.GreaterOrEqual(rt, remembered(worst), most)
			}
		}
	})
}

func scaled(t require.TestingT) *Job {
	j := NewJob("j", Spec{Name: "count", Version: "1", Backups: []string{"b"}, Operators: []Operator{
		{Name: "read", Workers: 1, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 2}, {Name: "write", Workers: 1, Compute: 1, Sink: true},
	}}, time.Unix(0, 0).UTC())
	for i := range j.Workers {
		w := &j.Workers[i]
		w.Node, w.Session, w.Epoch, w.Past.Items = "a", "s", uint64(i)+3, 10
	}
	w := j.Worker("count", 1)
	w.Failures, w.FailedAt, w.FailedIn = 2, []uint64{1, 4}, []uint64{1, 3}
	j.State = Running
	decoded, err := DecodeJob(j.Encode())
	require.NoError(t, err)
	return decoded
}

// Whatever the numbers of workers, a divided record makes sense, spends nothing twice and nothing anew, and has epochs beyond all
// that there were.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := scaled(rt)
		epochs := map[string]uint64{}
		for layout := uint64(2); layout < 6; layout++ {
			n := rapid.IntRange(1, 5).Draw(rt, "workers")
			had := j.Spec.Operators[1].Workers
			if n == had {
				require.ErrorContains(rt, j.CannotScale("count", n), "already")
				n++
			}
			require.NoError(rt, j.CannotScale("count", n))
			items, worst, highest := uint64(0), uint64(0), uint64(0)
			for i := range j.Workers {
				w := &j.Workers[i]
				if rapid.Bool().Draw(rt, "fails") {
					w.Epoch++
					w.Fail()
					w.Epoch++
				}
				w.Past.Items += 7
				items += w.Past.Items
				if w.Operator == "count" {
					worst = max(worst, w.Failures)
				}
				highest = max(highest, w.Epoch)
				epochs[w.Name()] = w.Epoch
			}
			old := j.Clone()
			j.Scaling = &Scaling{ScaleWish: ScaleWish{ID: "x", Operator: "count", Workers: n}, Phase: ScaleLayout, Former: had}
			j.Divide()
			require.Equal(rt, layout, j.Layout)
			var err error
			j, err = DecodeJob(j.Encode())
			require.NoError(rt, err)
			require.Len(rt, j.Workers, 2+n)
			for i := range j.Workers {
				w := &j.Workers[i]
				require.Empty(rt, w.Node)
				require.Equal(rt, highest, w.Epoch)
				require.Less(rt, epochs[w.Name()], w.Epoch+1)
				items -= w.Past.Items
				if w.Operator == "count" {
					require.Equal(rt, worst, w.Failures)
				} else {
					require.Equal(rt, old.Worker(w.Operator, w.Index).FailedAt, w.FailedAt)
				}
			}
			require.Zero(rt, items, "what was done is not forgotten")
			for _, o := range j.Spec.Operators {
				want := old.Spec.Operators[slices.IndexFunc(old.Spec.Operators, func(p Operator) bool { return p.Name == o.Name })].Workers
				require.Equal(rt, want, j.FormerWorkers(&o))
			}
			require.Equal(rt, had, old.Spec.Operators[1].Workers, "a clone shares nothing")
		}
	})
}

func TestCannotScale(t *testing.T) {
	j := scaled(t)
	for what, c := range map[string]struct {
		operator string
		n        int
		change   func(j *Job)
		want     string
	}{
		"nobody":     {operator: "cuont", n: 2, want: "there is no operator"},
		"source":     {operator: "read", n: 2, want: "source"},
		"sink":       {operator: "write", n: 2, want: "sink"},
		"none":       {operator: "count", n: 0, want: "at least one worker, not 0"},
		"same":       {operator: "count", n: 2, want: "2 workers already"},
		"many":       {operator: "count", n: 513, want: "512 workers of 2 goroutines at most"},
		"ended":      {operator: "count", n: 3, change: func(j *Job) { j.State = Cancelled }, want: "cancelled"},
		"no backups": {operator: "count", n: 3, change: func(j *Job) { j.Spec.Backups, j.View = nil, nil }, want: "no backups"},
		"too large":  {operator: "count", n: 3, change: func(j *Job) { j.Spec.Args = []string{strings.Repeat("x", maxRecord)} }, want: ErrTooLarge.Error()},
	} {
		c2 := j.Clone()
		if c.change != nil {
			c.change(c2)
		}
		require.ErrorContains(t, c2.CannotScale(c.operator, c.n), c.want, what)
	}
	require.NoError(t, j.CannotScale("count", 512))
	require.Len(t, j.Workers, 4, "asking changes nothing")
}

// A record of a scaling that does not fit its workers is refused.
func TestScalingOfRecordsThatMakeNoSense(t *testing.T) {
	for what, change := range map[string]func(s *Scaling, j *Job){
		"operator": func(s *Scaling, _ *Job) { s.Operator = "other" },
		"former":   func(s *Scaling, _ *Job) { s.Former = 7 },
		"phase":    func(s *Scaling, _ *Job) { s.Phase = "nowhere" },
		"id":       func(s *Scaling, _ *Job) { s.ID = "" },
		"layout":   func(s *Scaling, _ *Job) { s.Phase = ScaleLayout },
	} {
		j := scaled(t)
		j.Scaling = &Scaling{ScaleWish: ScaleWish{ID: "x", Operator: "count", Workers: 3}, Phase: ScaleHold, Former: 2, Round: 1}
		_, err := DecodeJob(j.Encode())
		require.NoError(t, err)
		change(j.Scaling, j)
		_, err = DecodeJob(j.Encode())
		require.ErrorIs(t, err, ErrRecord, what)
	}
	w := &ScaleWish{ID: "x", Operator: "count", Workers: 3}
	got, err := DecodeScaleWish(w.Encode())
	require.NoError(t, err)
	require.Equal(t, w, got)
	for _, bad := range []string{"", "{}", `{"id":"a b"}`, "[]"} {
		_, err := DecodeScaleWish([]byte(bad))
		require.Error(t, err, bad)
	}
}
