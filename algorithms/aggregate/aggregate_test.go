package aggregate

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// trade is an item with a signed value.
type trade struct {
	Name   string
	Amount float64
	Void   bool
}

func tradeOptions() Options[trade] {
	return Options[trade]{
		Key:   func(t *trade) connector.Key { return connector.MakeKey([]byte(t.Name)) },
		Value: func(t *trade) float64 { return t.Amount },
		Keep:  func(t *trade) bool { return !t.Void },
	}
}

func key(name string) connector.Key { return connector.MakeKey([]byte(name)) }

func TestAggregates(t *testing.T) {
	a := New(tradeOptions())
	for _, item := range []trade{{"b", 2, false}, {"a", -3, false}, {"b", -4, false}, {"a", 100, true}, {"b", 8, false}} {
		require.NoError(t, a.Process(item, nil))
	}
	rows := a.Rows()
	require.Equal(t, []Row{{key("a"), Aggregates{1, -3, -3, -3}}, {key("b"), Aggregates{3, 6, -4, 8}}}, rows)
	require.Equal(t, 2.0, rows[1].Mean())
}

func TestCountOnly(t *testing.T) {
	o := tradeOptions()
	o.Value, o.Keep = nil, nil
	a := New(o)
	require.NoError(t, a.ProcessBatch([]trade{{"a", math.NaN(), true}, {"a", 0, true}}, nil))
	require.Equal(t, []Row{{key("a"), Aggregates{2, 2, 1, 1}}}, a.Rows())
}

func TestValuesOutOfRange(t *testing.T) {
	o := tradeOptions()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, New(o).Process(trade{Name: "a", Amount: v}, nil), ErrValue)
	}
	o.Measure, o.Alpha = BySum, 10
	a := New(o)
	require.NoError(t, a.Process(trade{Name: "a", Amount: -10}, nil))
	require.ErrorIs(t, a.Process(trade{Name: "a", Amount: -10.5}, nil), ErrValue)
	require.Equal(t, uint64(1), a.Rows()[0].Count)
}

func TestOverflowIsReported(t *testing.T) {
	a := New(tradeOptions())
	a.SetTheta(1)
	for range 2 {
		require.NoError(t, a.Process(trade{Name: "a", Amount: math.MaxFloat64}, nil))
	}
	require.Error(t, a.BackupState(stream.NewStateWriter(nil, true)))
}

func TestValidate(t *testing.T) {
	good := tradeOptions()
	for _, spoil := range []func(o *Options[trade]){
		func(o *Options[trade]) { o.Key = nil }, func(o *Options[trade]) { o.Measure = 2 },
		func(o *Options[trade]) { o.Norm = errorbound.L2 }, func(o *Options[trade]) { o.Combine = 2 },
		func(o *Options[trade]) { o.Alpha = math.NaN() }, func(o *Options[trade]) { o.Alpha = -1 },
	} {
		o := good
		spoil(&o)
		require.ErrorIs(t, o.Validate(), ErrOptions)
		require.Panics(t, func() { New(o) })
	}
	require.NoError(t, good.Validate())
}

// drawItems are items of few keys with signed values.
func drawItems(t *rapid.T, most int) (items []trade) {
	for range rapid.IntRange(0, most).Draw(t, "items") {
		items = append(items, trade{
			Name:   fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "key")),
			Amount: float64(rapid.IntRange(-4, 4).Draw(t, "amount")),
		})
	}
	return items
}

// TestMergeAgainstExact: however the items fall to partitions, the merged rows are the exact ones.
func TestMergeAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := tradeOptions()
		parts := []*Aggregate[trade]{New(o), New(o), New(o)}
		exact := NewExact(o)
		for _, item := range drawItems(t, 60) {
			exact.Add(item)
			require.NoError(t, parts[rapid.IntRange(0, 2).Draw(t, "part")].Process(item, nil))
		}
		m := NewMerge()
		for _, p := range parts {
			for _, row := range p.Rows() {
				require.NoError(t, m.Process(row, nil))
			}
		}
		n := exact.Len()
		require.Equal(t, Quality{Keys: n, Reported: n}, Compare(m.groups.rows(), exact))
		again := NewMerge()
		require.NoError(t, again.RestoreState(statetest.Reader(statetest.Backup(t, m, false))))
		require.Equal(t, m.groups.rows(), again.groups.rows())
	})
}

// TestDivergence: at any moment the divergence is at least what the items that a restore would lack add up to, for the
// durable backup and for the one in flight.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := tradeOptions()
		o.Norm = rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(t, "norm")
		o.Measure = rapid.SampledFrom([]Measure{ByCount, BySum}).Draw(t, "measure")
		o.Alpha = rapid.SampledFrom([]float64{0, 4}).Draw(t, "alpha")
		a := New(o)
		a.SetTheta(rapid.SampledFrom([]float64{0, 1, 7, 40, 1000}).Draw(t, "theta"))
		s, seen := statetest.NewStore(a), map[string][]float64{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			for _, item := range drawItems(t, 15) {
				require.NoError(t, a.Process(item, nil))
				seen[item.Name] = append(seen[item.Name], item.Amount)
			}
			s.Draw(t)
			statetest.CheckLoss(t, s, math.Inf(1), func() *Aggregate[trade] { return New(o) },
				func(r *Aggregate[trade]) float64 { return lacking(t, o, seen, r) })
		}
	})
}

// lacking adds up what the items of seen weigh that are not in r. It is found from the counts: the restored aggregates of
// a key are those of its first items.
func lacking(t require.TestingT, o Options[trade], seen map[string][]float64, r *Aggregate[trade]) float64 {
	counts := map[connector.Key]Aggregates{}
	for _, row := range r.Rows() {
		counts[row.Key] = row.Aggregates
	}
	most, all := 0.0, 0.0
	for name, values := range seen {
		got := counts[key(name)]
		sum, path := 0.0, 0.0
		for i, v := range values {
			if uint64(i) < got.Count {
				sum += v
			} else if o.Measure == BySum {
				path += math.Abs(v)
			} else {
				path++
			}
		}
		require.Equal(t, sum, got.Sum)
		most, all = max(most, path), all+path
	}
	if o.Norm == errorbound.L1 {
		return all
	}
	return most
}

// TestCancellingSums: a sum that comes back to where it was has moved all the same.
func TestCancellingSums(t *testing.T) {
	o := tradeOptions()
	o.Measure, o.Alpha = BySum, 9
	a := New(o)
	a.SetTheta(100)
	for range 5 {
		require.NoError(t, a.ProcessBatch([]trade{{"a", 9, false}, {"a", -9, false}}, nil))
	}
	require.GreaterOrEqual(t, a.StateDivergence(), 90.0)
}

// TestPartialBackupsLeaveRoom for one more item, or a job would stand still.
func TestPartialBackupsLeaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := tradeOptions()
		o.Norm = rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(t, "norm")
		o.Measure, o.Alpha = BySum, 4
		theta := rapid.Float64Range(4, 200).Draw(t, "theta")
		a := New(o)
		a.SetTheta(theta)
		require.NoError(t, a.ProcessBatch(drawItems(t, 100), nil))
		statetest.Backup(t, a, false)
		a.BackupDurable()
		require.LessOrEqual(t, a.StateDivergence()+4, theta)
		require.Empty(t, statetest.Backup(t, a, false), "nothing is written twice")
	})
}

// TestWindows: what an earlier window had is neither emitted nor left in the backups.
func TestWindows(t *testing.T) {
	for _, theta := range []float64{100, math.Inf(1)} {
		a := New(tradeOptions())
		a.SetTheta(theta)
		require.NoError(t, a.ProcessBatch([]trade{{"old", 1, false}, {"kept", 1, false}}, nil))
		durable := [][]byte{statetest.Backup(t, a, true)}
		a.BackupDurable()
		a.groups.reset()
		require.Empty(t, a.Rows())
		require.Equal(t, math.Inf(1), a.StateDivergence())
		require.NoError(t, a.ProcessBatch([]trade{{"new", 2, false}, {"kept", 3, false}}, nil))
		durable = append(durable, statetest.Backup(t, a, false))
		a.BackupDurable()
		r := New(tradeOptions())
		require.NoError(t, r.RestoreState(statetest.Reader(durable...)))
		require.Equal(t, []Row{{key("kept"), Aggregates{1, 3, 3, 3}}, {key("new"), Aggregates{1, 2, 2, 2}}}, r.Rows())
		require.Equal(t, math.IsInf(theta, 1), math.IsInf(a.StateDivergence(), 1))
	}
	never := New(tradeOptions())
	never.SetTheta(100)
	require.NoError(t, never.Process(trade{Name: "a"}, nil))
	never.groups.reset()
	require.Zero(t, never.StateDivergence(), "nothing was ever backed up")
	require.Empty(t, never.groups.gone)
}

func TestCompare(t *testing.T) {
	e := NewExact(tradeOptions())
	for _, item := range []trade{{"a", 1, false}, {"a", 5, false}, {"b", -2, false}} {
		e.Add(item)
	}
	rows := []Row{{key("a"), Aggregates{1, 5, 5, 5}}, {key("c"), Aggregates{1, 7, 7, 7}}}
	require.Equal(t, Quality{
		MaxCountError: 1, SumCountError: 3, MaxSumError: 7, SumSumError: 10, MaxMeanError: 2,
		Missing: 1, Extra: 1, WrongMin: 1, Keys: 2, Reported: 2,
	}, Compare(rows, e))
}

func FuzzRow(f *testing.F) {
	statetest.FuzzBinary(f, ErrRow, func(t *testing.T, r Row, wire, again []byte) {
		require.Equal(t, wire, again)
		require.NoError(t, NewMerge().Process(r, nil))
	}, Row{key("a"), Aggregates{2, 3, 1, 2}})
}

func FuzzRestoreState(f *testing.F) {
	a := New(tradeOptions())
	require.NoError(f, a.ProcessBatch([]trade{{"a", 1, false}, {"b", -2, false}}, nil))
	statetest.Restore[*Aggregate[trade]]{
		Fresh: func() *Aggregate[trade] { return New(tradeOptions()) },
		View:  func(a *Aggregate[trade]) any { return a.Rows() },
	}.Fuzz(f, a)
}
