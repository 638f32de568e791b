package reservoir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// number is an item with a binary form.
type number uint32

func (n number) AppendBinary(dst []byte) ([]byte, error) {
	return binary.LittleEndian.AppendUint32(dst, uint32(n)), nil
}

func (n *number) UnmarshalBinary(src []byte) error {
	if len(src) != 4 {
		return errors.New("a number has 4 bytes")
	}
	*n = number(binary.LittleEndian.Uint32(src))
	return nil
}

func entries(t require.TestingT, s *Sample[number]) []Entry[number] {
	list, err := s.Entries()
	require.NoError(t, err)
	return list
}

func items(list []Entry[number]) (numbers []number) {
	for _, e := range list {
		numbers = append(numbers, e.Item)
	}
	return numbers
}

// upTo is 0, 1, ... n-1.
func upTo(n int) []number {
	list := make([]number, n)
	for i := range list {
		list[i] = number(i)
	}
	return list
}

// weighted draws number i with weight i+1.
func weighted(n *number) float64 { return float64(*n) + 1 }

func TestAllOfFewItems(t *testing.T) {
	for _, weight := range []func(*number) float64{nil, weighted} {
		s := NewSample(Options[number]{Size: 10, Weight: weight})
		require.NoError(t, s.ProcessBatch(upTo(10), nil))
		list := entries(t, s)
		require.EqualValues(t, 10, list[0].Seen)
		require.Equal(t, map[bool]float64{true: 10, false: 55}[weight == nil], list[0].Weight)
		numbers := items(list)
		slices.Sort(numbers)
		require.Equal(t, upTo(10), numbers)
		require.Empty(t, entries(t, NewSample(Options[number]{Size: 1})))
	}
}

func TestWeightsOutOfRange(t *testing.T) {
	for _, w := range []float64{-1, math.NaN(), math.Inf(1)} {
		s := NewSample(Options[number]{Size: 1, Weight: func(*number) float64 { return w }})
		require.ErrorIs(t, s.Process(1, nil), ErrWeight)
	}
	s := NewSample(Options[number]{Size: 3, Weight: func(n *number) float64 { return float64(*n) }})
	require.NoError(t, s.ProcessBatch([]number{0, 1, 0}, nil))
	list := entries(t, s)
	require.Equal(t, []number{1}, items(list), "an item without weight is never drawn")
	require.EqualValues(t, 3, list[0].Seen)
	heavy := NewSample(Options[number]{Size: 3, Weight: func(*number) float64 { return math.MaxFloat64 }})
	require.NoError(t, heavy.Process(1, nil))
	require.ErrorIs(t, heavy.Process(1, nil), ErrWeight, "the sum would be infinite")
}

func TestValidate(t *testing.T) {
	require.ErrorIs(t, Options[number]{}.Validate(), ErrOptions)
	require.ErrorIs(t, Options[number]{Size: MaxSize + 1}.Validate(), ErrOptions)
	require.ErrorIs(t, Options[int]{Size: 1}.Validate(), ErrOptions)
	require.Panics(t, func() { NewSample(Options[int]{Size: 1}) })
	require.NoError(t, Options[number]{Size: 1}.Validate())
}

// TestMerge: the merged sample is the one with the smallest priorities of all, whatever the partitions, and comes
// through a backup unchanged.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options[number]{Size: rapid.IntRange(1, 12).Draw(t, "size")}
		all := o
		all.Size = 1000
		m := NewMerge(o)
		var want []Entry[number]
		seen := uint64(0)
		for part := range 3 {
			numbers := upTo(rapid.IntRange(0, 30).Draw(t, "items"))
			seen += uint64(len(numbers))
			for _, size := range []Options[number]{o, all} {
				s := NewSample(size)
				require.NoError(t, s.Open(context.Background(), stream.Placement{Partition: part}))
				require.NoError(t, s.ProcessBatch(numbers, nil))
				for _, e := range entries(t, s) {
					if size.Size == 1000 {
						want = append(want, Entry[number]{Item: e.Item, Priority: e.Priority})
						continue
					}
					require.NoError(t, m.Process(e, nil))
				}
			}
		}
		want, err := smallest(want, o.Size)
		require.NoError(t, err)
		again := NewMerge(o)
		require.NoError(t, again.RestoreState(statetest.Reader(statetest.Backup(t, m, false))))
		require.NoError(t, again.rank())
		for _, m := range []*Merge[number]{m, again} {
			require.Equal(t, seen, m.seen)
			require.ElementsMatch(t, want, m.entries)
		}
	})
}

// TestMergeForgets what cannot be in the sample.
func TestMergeForgets(t *testing.T) {
	m := NewMerge(Options[number]{Size: 2})
	for i := range 10_000 {
		require.NoError(t, m.Process(Entry[number]{Item: number(i), Priority: float64(10_000 - i)}, nil))
		require.Less(t, len(m.entries), 2000)
	}
	require.NoError(t, m.rank())
	require.Equal(t, []number{9999, 9998}, items(m.entries))
}

// TestDivergence: at any moment it is at least the number of entries in which the sample differs from what a restore
// would find, and no backup leaves anything.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options[number]{Size: rapid.IntRange(1, 6).Draw(t, "size"), Seed: rapid.Uint64().Draw(t, "seed")}
		if rapid.Bool().Draw(t, "weighted") {
			o.Weight = weighted
		}
		s := NewSample(o)
		s.SetTheta(10)
		store := statetest.NewStore(s)
		for next := range number(rapid.IntRange(1, 60).Draw(t, "steps")) {
			if rapid.IntRange(0, 40).Draw(t, "reset") == 0 {
				s.reset()
			} else {
				before := s.StateDivergence()
				require.NoError(t, s.Process(next, nil))
				require.LessOrEqual(t, s.StateDivergence(), before+alpha+1e-9)
			}
			store.Draw(t)
			for _, backups := range store.Left() {
				r := NewSample(o)
				require.NoError(t, r.RestoreState(statetest.Reader(backups...)))
				have, want := items(entries(t, r)), items(entries(t, s))
				differ := 0
				for _, x := range append(slices.Clone(have), want...) {
					if slices.Contains(have, x) != slices.Contains(want, x) {
						differ++
					}
				}
				require.GreaterOrEqual(t, s.StateDivergence(), float64(differ))
			}
		}
		for range 2 { // the second deletes what left while the first was in flight
			store.Save(t, false)
		}
		require.Zero(t, s.StateDivergence())
	})
}

// TestReplay: items that are processed again after a failure are drawn again, so that the sample is the one without
// the failure.
func TestReplay(t *testing.T) {
	o := Options[number]{Size: 20, Seed: 3}
	s := NewSample(o)
	numbers := upTo(5000)
	require.NoError(t, s.ProcessBatch(numbers[:2000], nil))
	saved := statetest.Backup(t, s, true)
	require.NoError(t, s.ProcessBatch(numbers[2000:], nil))
	r := NewSample(o)
	require.NoError(t, r.RestoreState(statetest.Reader(saved)))
	require.NoError(t, r.ProcessBatch(numbers[2000:], nil))
	require.Equal(t, entries(t, s), entries(t, r))
}

// TestBackupsBecomeRare: the number of entries written grows with the logarithm of the items.
func TestBackupsBecomeRare(t *testing.T) {
	s := NewSample(Options[number]{Size: 100})
	s.SetTheta(20)
	backups := 0
	for i := range 100_000 {
		require.NoError(t, s.Process(number(i), nil))
		if s.StateDivergence() > 15 {
			statetest.Backup(t, s, false)
			s.BackupDurable()
			backups++
		}
	}
	// Entries: 100 * (1 + ln(1000)), and as many go; the number of items seen makes it half as many again.
	require.Less(t, backups, 3*791/15)
	require.Greater(t, backups, 20)
}

func TestRestoreSmallerSize(t *testing.T) {
	s := NewSample(Options[number]{Size: 50})
	require.NoError(t, s.ProcessBatch(upTo(500), nil))
	r := NewSample(Options[number]{Size: 10})
	require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, s, true))))
	require.Equal(t, items(entries(t, s))[:10], items(entries(t, r)))
	r.SetTheta(100)
	require.Equal(t, 40.0, r.StateDivergence(), "the others are to be deleted")
}

func TestStandardError(t *testing.T) {
	require.InDelta(t, 0.1, StandardError(1, 130, errorbound.Params{Theta: 24, L: 2}), 1e-12)
	require.Equal(t, math.Inf(1), StandardError(1, 10, errorbound.Params{Theta: 40}))
}

func FuzzEntry(f *testing.F) {
	statetest.FuzzBinary(f, ErrEntry, statetest.Canonical, Entry[number]{Item: 7, Priority: 0.5, Seen: 3, Weight: 2})
}

func FuzzRestoreState(f *testing.F) {
	o := Options[number]{Size: 3}
	s := NewSample(o)
	require.NoError(f, s.ProcessBatch(upTo(9), nil))
	statetest.Restore[*Sample[number]]{
		Fresh: func() *Sample[number] { return NewSample(o) },
		View: func(s *Sample[number]) any {
			list, err := s.Entries()
			return fmt.Sprint(list, err)
		},
	}.Fuzz(f, s)
}

func FuzzRestoreMerge(f *testing.F) {
	o := Options[number]{Size: 3}
	m, s := NewMerge(o), NewSample(o)
	require.NoError(f, s.ProcessBatch(upTo(9), nil))
	for _, e := range entries(f, s) {
		require.NoError(f, m.Process(e, nil))
	}
	statetest.Restore[*Merge[number]]{
		Fresh: func() *Merge[number] { return NewMerge(o) },
		View:  func(m *Merge[number]) any { return m.entries },
	}.Fuzz(f, m)
}
