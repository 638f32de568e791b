package state

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

func values(c *Counters) []float64 {
	var v []float64
	for _, x := range c.All() {
		v = append(v, x)
	}
	return v
}

// maxDistance is the maximum norm, with the slack of each sum.
func maxDistance(a, b *Counters) float64 {
	d := 0.0
	for i, v := range a.All() {
		d = max(d, math.Abs(v-b.At(i))/a.factor(i))
	}
	return d
}

// TestCountersModel runs random additions under the runtime's rule and restores at random points: what a failure costs
// is never more than StateDivergence says, and that never more than theta.
func TestCountersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		theta := thetas(t)
		alpha := rapid.SampledFrom([]float64{0, 0.1, 0.3, 0.45, 0.6, 0.9, 1}).Draw(t, "alpha") * theta
		fresh := func() *Counters {
			c := NewCounters(n)
			c.SetAlpha(alpha)
			c.SetSlack(0, 4)
			return c
		}
		c := fresh()
		c.SetTheta(theta)
		s := statetest.NewStore(c)
		model := make([]float64, n)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			if alpha > 0 {
				w := rapid.Float64Range(0, alpha).Draw(t, "w")
				s.Room(t, theta, alpha)
				c.Add(i, w)
				model[i] += w
			} else {
				w := rapid.Float64Range(0, 1+2*theta).Draw(t, "w")
				c.Add(i, w)
				model[i] += w
				s.Settle(t, theta)
			}
			s.Draw(t)
			if rapid.IntRange(0, 40).Draw(t, "reset") == 0 {
				c.Reset()
				clear(model)
				s.Settle(t, theta)
			}
			require.Equal(t, model, values(c))
			statetest.CheckLoss(t, s, theta, fresh, func(r *Counters) float64 { return maxDistance(c, r) })
		}
		s.Land()
		s.Save(t, true)
		require.Zero(t, c.StateDivergence())
	})
}

// restoredFrom returns the sums that a failure now would leave.
func restoredFrom(t *testing.T, n int, s *statetest.Store) []float64 {
	c := NewCounters(n)
	require.NoError(t, c.RestoreState(statetest.Reader(s.Durable()...)))
	return values(c)
}

// TestCountersWithoutTheta checks that without a theta nothing is kept beside the sums, and that a theta that comes later is kept
// although nobody knows what was durable before.
func TestCountersWithoutTheta(t *testing.T) {
	for _, restored := range []bool{false, true} {
		c := NewCounters(3)
		s := statetest.NewStore(c)
		c.Add(1, 100)
		s.Save(t, true)
		if restored {
			c = NewCounters(3)
			s.Recover(t, c)
		}
		c.Add(2, 7)
		require.Nil(t, c.durable)
		require.Nil(t, c.snapshot)
		require.Nil(t, c.mark)

		c.SetTheta(8)
		require.Equal(t, inf, c.StateDivergence(), "2 is not saved")
		s.Save(t, false)
		require.Zero(t, c.StateDivergence())
		require.Equal(t, []float64{0, 100, 7}, restoredFrom(t, 3, s))
		c.Add(0, 5)
		require.LessOrEqual(t, 5.0, c.StateDivergence())
	}
}

// TestCountersUntrackedReset checks that sums of before a reset do not come back.
func TestCountersUntrackedReset(t *testing.T) {
	c := NewCounters(2)
	s := statetest.NewStore(c)
	c.Add(0, 1)
	s.Save(t, true)
	c.Reset()
	c.Add(1, 1)
	s.Save(t, false)
	require.Equal(t, []float64{0, 1}, restoredFrom(t, 2, s))

	r := NewCounters(2)
	s.Recover(t, r)
	r.Reset()
	s.Save(t, false)
	require.Equal(t, []float64{0, 0}, restoredFrom(t, 2, s))
}

// TestCountersThetaWhileSaved checks a theta that comes between a backup without one and the moment it is durable.
func TestCountersThetaWhileSaved(t *testing.T) {
	c := NewCounters(2)
	s := statetest.NewStore(c)
	c.Add(0, 1)
	s.Start(t, true)
	c.SetTheta(8)
	s.Land()
	require.Equal(t, inf, c.StateDivergence())
	s.Save(t, false)
	require.Zero(t, c.StateDivergence())
}

// TestCountersGoOn checks that a restored state goes on as the state would have, with theta set before or after.
func TestCountersGoOn(t *testing.T) {
	for _, thetaFirst := range []bool{true, false} {
		a := NewCounters(3)
		a.SetTheta(8)
		s := statetest.NewStore(a)
		a.Add(1, 100)
		s.Settle(t, 8)

		b := NewCounters(3)
		if thetaFirst {
			b.SetTheta(8)
		}
		require.NoError(t, b.RestoreState(statetest.Reader(s.Durable()...)))
		if !thetaFirst {
			b.SetTheta(8)
		}
		require.Equal(t, []float64{0, 100, 0}, values(b))
		require.Zero(t, b.StateDivergence())
		b.Add(1, 7.5)
		require.Equal(t, 7.5, b.StateDivergence())
	}
}

// TestCountersLevels follows one sum through all levels at theta = 8.
func TestCountersLevels(t *testing.T) {
	c := NewCounters(2)
	c.SetTheta(8)
	for _, step := range []struct {
		add, want float64
		due       int
	}{
		{0, 0, 0}, {1, 4, 0}, {2.5, 4, 0}, // quiet
		{0.5, 6, 1}, {1.5, 6, 1}, // due from 4 on
		{0.5, 7, 1},                // requested from 6 on: above 3/4 theta
		{1, 7, 1}, {0.25, 7.25, 1}, // near from 7 on: exact
		{10, 17.25, 1},
	} {
		c.Add(1, step.add)
		require.Equal(t, step.want, c.StateDivergence(), "after adding %v", step.add)
		require.Equal(t, step.due, elements(t, c, false))
	}
}

// elements returns how many elements a backup has, which is then lost.
func elements(t *testing.T, b stream.BackupState, whole bool) int {
	w := stream.NewStateWriter(nil, whole)
	require.NoError(t, b.BackupState(w))
	n := 0
	for r := statetest.Reader(w.Bytes()); r.Next(); n++ {
	}
	return n
}

// TestCountersPartial checks that a partial backup writes what is due and nothing else, and that sums that moved on
// while it was in flight are judged by what it wrote.
func TestCountersPartial(t *testing.T) {
	c := NewCounters(4)
	c.SetTheta(8)
	s := statetest.NewStore(c)
	c.Add(0, 3.9)
	c.Add(1, 4)
	c.Add(2, 6.5)
	require.Equal(t, 2, elements(t, c, false))
	s.Start(t, false)
	c.Add(2, 1.25)
	c.Add(3, 5)
	require.Equal(t, 7.75, c.StateDivergence(), "in flight still counts")
	s.Land()
	require.Equal(t, 6.0, c.StateDivergence(), "sum 3 is due")
	require.Equal(t, 1, elements(t, c, false))
	require.Equal(t, 4, elements(t, c, true))
}

// TestCountersZeroTheta: every addition shows at once, and is gone with the next backup.
func TestCountersZeroTheta(t *testing.T) {
	c := NewCounters(2)
	c.SetTheta(0)
	s := statetest.NewStore(c)
	c.Add(0, 0)
	require.Zero(t, c.StateDivergence())
	c.Add(0, 0.25)
	c.Add(1, 3)
	require.Equal(t, 3.0, c.StateDivergence())
	s.Settle(t, 0)
	require.Zero(t, c.StateDivergence())
}

// TestCountersUntracked: without a promise every backup is a whole one, and divergence is not known.
func TestCountersUntracked(t *testing.T) {
	c := NewCounters(3)
	s := statetest.NewStore(c)
	c.Add(0, 5)
	c.Add(2, 7)
	require.Equal(t, inf, c.StateDivergence())
	s.Save(t, false)
	r := NewCounters(3)
	require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
	require.Equal(t, values(c), values(r))

	c.Reset()
	c.Add(1, 1)
	s.Save(t, false)
	r = NewCounters(3)
	require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
	require.Equal(t, []float64{0, 1, 0}, values(r), "zeros overwrite what was there before the reset")
}

// TestCountersRoundedLimit: where theta is lost in the rounding of a large sum, the divergence is still not above what
// StateDivergence says.
func TestCountersRoundedLimit(t *testing.T) {
	c := NewCounters(1)
	c.SetTheta(3)
	s := statetest.NewStore(c)
	c.Add(0, 1<<53)
	s.Settle(t, 3)
	c.Add(0, 2)
	require.GreaterOrEqual(t, c.StateDivergence(), c.At(0)-(1<<53))
}

func TestCountersResetInFlight(t *testing.T) {
	c := NewCounters(1)
	c.SetTheta(10)
	s := statetest.NewStore(c)
	c.Add(0, 9)
	s.Start(t, false)
	c.Reset()
	require.Equal(t, inf, c.StateDivergence())
	s.Land()
	require.Equal(t, inf, c.StateDivergence(), "what became durable is from before the reset")
	s.Save(t, false)
	require.Zero(t, c.StateDivergence())
	r := NewCounters(1)
	require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
	require.Zero(t, r.At(0))
}

func TestCountersResetOfNothing(t *testing.T) {
	c := NewCounters(1)
	c.SetTheta(10)
	c.Add(0, 3)
	c.Reset()
	require.Zero(t, c.StateDivergence())
}

func TestCountersNotFinite(t *testing.T) {
	for _, theta := range []float64{0, 10, inf} {
		for _, w := range []float64{math.NaN(), inf, math.MaxFloat64} {
			c := NewCounters(2)
			c.SetTheta(theta)
			c.Add(1, w)
			c.Add(1, w)
			require.True(t, math.IsNaN(c.StateDivergence()), "theta %v, twice %v", theta, w)
			require.ErrorIs(t, c.BackupState(stream.NewStateWriter(nil, true)), ErrNotFinite)
			c.Reset()
			require.NoError(t, c.BackupState(stream.NewStateWriter(nil, true)))
		}
	}
}

func TestCountersRestoreRejects(t *testing.T) {
	number := func(v float64) uint64 { return math.Float64bits(v) }
	for name, write := range map[string]func(w *stream.StateWriter){
		"index beyond the end": func(w *stream.StateWriter) { w.PutUint64(3, number(1)) },
		"huge index":           func(w *stream.StateWriter) { w.PutUint64(math.MaxUint64, number(1)) },
		"negative":             func(w *stream.StateWriter) { w.PutUint64(0, number(-1)) },
		"NaN":                  func(w *stream.StateWriter) { w.PutUint64(0, number(math.NaN())) },
		"infinite":             func(w *stream.StateWriter) { w.PutUint64(0, number(inf)) },
		"short key":            func(w *stream.StateWriter) { w.Put([]byte("k"), make([]byte, 8)) },
		"short value":          func(w *stream.StateWriter) { w.Put(make([]byte, 8), []byte("v")) },
	} {
		w := stream.NewStateWriter(nil, true)
		write(w)
		require.ErrorIs(t, NewCounters(3).RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
}

func TestCountersRestoreDeleted(t *testing.T) {
	w := stream.NewStateWriter(nil, true)
	w.PutUint64(1, math.Float64bits(5))
	w.Delete([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	c := NewCounters(2)
	require.NoError(t, c.RestoreState(statetest.Reader(w.Bytes())))
	require.Zero(t, c.At(1))
}

func TestCountersAddAll(t *testing.T) {
	a, b := NewCounters(2), NewCounters(2)
	a.Add(0, 1)
	b.Add(0, 2)
	b.Add(1, 3)
	require.NoError(t, a.AddAll(b))
	require.Equal(t, []float64{3, 3}, values(a))
	a.AddRange(1, 2, 4)
	require.Equal(t, []float64{3, 7}, values(a))
	require.ErrorIs(t, a.AddAll(NewCounters(3)), ErrLength)
}

func TestCountersMeasure(t *testing.T) {
	c := NewCounters(1)
	c.SetAlpha(1500)
	require.Equal(t, stream.Measure{Alpha: 1500, Norm: errorbound.Max, Combine: errorbound.Added}, c.Measure())
}

func TestCountersAddDoesNotAllocate(t *testing.T) {
	c := NewCounters(64)
	c.SetTheta(10)
	s := statetest.NewStore(c)
	for i := range 64 {
		c.Add(i, 9) // lets the list of due sums grow to its full length
	}
	s.Save(t, true)
	i := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c.Add(i%64, 1)
		i++
	}))
}

func FuzzCountersRestore(f *testing.F) {
	statetest.Restore[*Counters]{
		Fresh: func() *Counters { return NewCounters(5) },
		View:  func(c *Counters) any { return values(c) },
	}.Fuzz(f, NewCounters(5), changed(NewCounters(5), func(c *Counters) { c.Add(0, 1); c.Add(4, 1e300) }))
}

// BenchmarkCountersAdd tells what tracking costs: additions to random sums, backups taken when asked for.
func BenchmarkCountersAdd(b *testing.B) {
	for name, theta := range map[string]float64{"theta=inf": inf, "theta=2500": 2500} {
		b.Run(name, func(b *testing.B) {
			c := NewCounters(1 << 15)
			c.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			b.ReportAllocs()
			x := uint32(1)
			for i := 0; b.Loop(); i++ {
				x = x*1664525 + 1013904223
				c.Add(int(x>>17), 1)
				if i&255 == 0 && theta < inf && c.StateDivergence() > theta*3/4 {
					w.Reset(false)
					if err := c.BackupState(w); err != nil {
						b.Fatal(err)
					}
					c.BackupDurable()
				}
			}
		})
	}
}

// A sum of SetAlways is in every backup, so that a restore finds it as it was when the backup was made.
func TestCountersAlwaysSaved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := NewCounters(4)
		c.SetAlways(3)
		c.SetTheta(rapid.Float64Range(0, 100).Draw(rt, "theta"))
		saved := map[uint64]float64{}
		for range rapid.IntRange(1, 30).Draw(rt, "backups") {
			for range rapid.IntRange(0, 20).Draw(rt, "adds") {
				c.Add(rapid.IntRange(0, 2).Draw(rt, "sum"), 1)
				c.Add(3, 1)
			}
			w := stream.NewStateWriter(nil, false)
			require.NoError(rt, c.BackupState(w))
			r := statetest.Reader(w.Bytes())
			for r.Next() {
				i, bits, err := r.Uint64()
				require.NoError(rt, err)
				saved[i] = math.Float64frombits(bits)
			}
			require.NoError(rt, r.Err())
			require.Equal(rt, c.At(3), saved[3])
			c.BackupDurable()
			for i := range 3 {
				require.LessOrEqual(rt, c.At(i)-saved[uint64(i)], c.StateDivergence())
			}
		}
	})
}
