package join

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// rowsOf returns the rows of both inputs with what a backup knows of them.
func rowsOf(j *Join[uint8, row, row]) map[row]status {
	rows := map[row]status{}
	for r := range j.refs() {
		if r.side == leftSide {
			rows[j.left.slots[r.slot].row] = j.left.slots[r.slot].status & matched
		} else {
			rows[j.right.slots[r.slot].row] = 0
		}
	}
	return rows
}

// differences counts what StateDivergence promises to bound: rows that are missing or not as they were, and in a
// LeftOuter join left rows that are back.
func differences(j, restored *Join[uint8, row, row], list []step) int {
	isLeft := map[row]bool{}
	for _, s := range list {
		isLeft[s.row] = s.left
	}
	now, then, n := rowsOf(j), rowsOf(restored), 0
	for r, s := range now {
		old, ok := then[r]
		if !ok || j.options.Kind == LeftOuter && old != s {
			n++
		}
	}
	for r := range then {
		if _, ok := now[r]; !ok && isLeft[r] && j.options.Kind == LeftOuter {
			n++
		}
	}
	return n
}

// TestCrash: at any moment, with backups that become durable or are lost at any other, a failure takes no more rows than
// StateDivergence says, which stays under theta, and costs no more pairs than MissingPairs.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const beta = 60
		o := options(rapid.SampledFrom([]Kind{Inner, LeftOuter}).Draw(t, "kind"), 5, 3)
		o.MaxMatches = beta
		o.Once = rapid.Bool().Draw(t, "once") && o.Kind == Inner
		list := steps(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 150).Draw(t, "n"), 4, 3)
		at := rapid.IntRange(0, len(list)).Draw(t, "crash")
		theta := rapid.SampledFrom([]float64{70, 90}).Draw(t, "theta")
		if o.Kind == Inner {
			theta = rapid.SampledFrom([]float64{1, 4, 20}).Draw(t, "small theta")
		}
		j := New(o)
		j.SetTheta(theta)
		s := statetest.NewStore(j)
		var got []Pair[row, row]
		for _, next := range list[:at] {
			s.Room(t, theta, j.Measure().Alpha)
			got = append(got, feed(t, j, next)...)
			s.Draw(t)
			require.LessOrEqual(t, j.StateDivergence(), theta)
			require.Equal(t, float64(j.ledger.unsaved+j.ledger.missed), j.StateDivergence())
		}
		restored := New(o)
		for _, backups := range [][][]byte{s.Landed(), s.Durable()} { // one in flight may have become durable all the same
			restored = New(o)
			require.NoError(t, restored.RestoreState(statetest.Reader(backups...)))
			checkTable(t, &restored.left)
			checkTable(t, &restored.right)
			require.LessOrEqual(t, float64(differences(j, restored, list)), j.StateDivergence())
		}
		got = append(got, feed(t, restored, list[at:]...)...)
		got = append(got, closing(restored, true)...)
		if !o.Once {
			c := Compare(got, exactOf(o, list))
			require.LessOrEqual(t, float64(c.Missing), MissingPairs(errorbound.Params{Theta: theta}, beta))
		}
	})
}

// TestWholeRoundTrip: a join goes on from a whole backup as if nothing had happened.
func TestWholeRoundTrip(t *testing.T) {
	for _, kind := range []Kind{Inner, LeftOuter} {
		for _, theta := range []float64{0, 50, math.Inf(1)} {
			o := options(kind, 20, 4)
			list := steps(7, 2000, 9, 4)
			j := New(o)
			j.SetTheta(theta)
			var got []Pair[row, row]
			for i, s := range list {
				if i%100 == 50 {
					r := New(o)
					require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, j, true))))
					r.SetTheta(theta)
					j = r
				}
				got = append(got, feed(t, j, s)...)
			}
			got = append(got, closing(j, true)...)
			c := Compare(got, exactOf(o, list))
			require.Zero(t, c.Missing+c.Extra)
		}
	}
}

// TestShortLivedRowsAreNotWritten: rows that leave before a backup wants them cost neither a write nor memory.
func TestShortLivedRowsAreNotWritten(t *testing.T) {
	j := New(options(Inner, 10, 0))
	j.SetTheta(1000)
	for i := range 100_000 {
		feed(t, j, step{i%2 == 0, row{uint8(i), int64(i), uint32(i)}})
		if d := j.StateDivergence(); !(d < 750) { // not require.Less, which costs more than all the rest
			require.Less(t, d, 750.0, "a window holds fewer")
		}
	}
	require.Less(t, len(j.ledger.fresh), 1200)
	require.Less(t, len(statetest.Backup(t, j, false)), 13*30*2)
}

func TestUntracked(t *testing.T) {
	j := New(options(LeftOuter, 10, 0))
	s := statetest.NewStore(j)
	j.SetTheta(math.Inf(1))
	feed(t, j, step{true, row{1, 1, 1}}, step{true, row{2, 2, 2}})
	require.Equal(t, math.Inf(1), j.StateDivergence())
	s.Save(t, false)
	feed(t, j, step{false, row{1, 3, 3}}, step{false, row{9, 30, 4}}, step{true, row{5, 31, 5}})
	s.Save(t, false)
	r := New(j.options)
	require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
	require.Equal(t, rowsOf(j), rowsOf(r))
	j.SetTheta(10)
	require.Zero(t, j.StateDivergence())
	feed(t, j, step{true, row{5, 32, 6}})
	require.Equal(t, 1.0, j.StateDivergence())
}

func TestRestoreRejects(t *testing.T) {
	key := append([]byte{leftSide}, make([]byte, 8)...)
	for name, write := range map[string]func(w *stream.StateWriter){
		"unknown":     func(w *stream.StateWriter) { w.Put([]byte("x"), nil) },
		"side":        func(w *stream.StateWriter) { w.Put(append([]byte("x"), key[1:]...), make([]byte, 14)) },
		"times":       func(w *stream.StateWriter) { w.Put([]byte(timesKey), nil) },
		"empty":       func(w *stream.StateWriter) { w.Put(key, nil) },
		"status":      func(w *stream.StateWriter) { w.Put(key, append([]byte{byte(saved)}, make([]byte, 13)...)) },
		"row":         func(w *stream.StateWriter) { w.Put(key, make([]byte, 3)) },
		"last number": func(w *stream.StateWriter) { w.Put([]byte("l\xff\xff\xff\xff\xff\xff\xff\xff"), make([]byte, 14)) },
	} {
		w := stream.NewStateWriter(nil, true)
		write(w)
		require.ErrorIs(t, New(options(Inner, 1, 1)).RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
}

func TestBackupFails(t *testing.T) {
	broken := errors.New("broken")
	o := options(Inner, 1, 1)
	o.Right.Append = func([]byte, *row) ([]byte, error) { return nil, broken }
	j := New(o)
	feed(t, j, step{false, row{1, 1, 1}})
	require.ErrorIs(t, j.BackupState(stream.NewStateWriter(nil, true)), broken)
}

func FuzzRestore(f *testing.F) {
	o := options(LeftOuter, 10, 2)
	j := New(o)
	feed(f, j, steps(1, 20, 3, 2)...)
	statetest.Restore[*Join[uint8, row, row]]{
		Fresh: func() *Join[uint8, row, row] { return New(o) },
		View:  func(j *Join[uint8, row, row]) any { return rowsOf(j) },
		Check: func(t *testing.T, j *Join[uint8, row, row]) {
			checkTable(t, &j.left)
			checkTable(t, &j.right)
		},
	}.Fuzz(f, j)
}

func TestBounds(t *testing.T) {
	p := errorbound.Params{Theta: 10, L: 5, Gamma: 3}
	require.Equal(t, 33.0, MissingPairs(p, 2))
	require.Equal(t, 3.0, MissingPairs(errorbound.Params{Gamma: 3}, math.Inf(1)))
	require.Equal(t, 2.0/math.Sqrt(100-23), RelativeError(2, 100, p, 2))
	require.Equal(t, 0.2, RelativeError(2, 100, errorbound.Params{}, 2))
	require.Equal(t, math.Inf(1), RelativeError(2, 23, p, 2))
	require.Equal(t, math.Inf(1), RelativeError(2, 23, errorbound.Params{Theta: math.Inf(1)}, 2))
}
