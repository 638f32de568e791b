package backup

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

func sinkAt(part int, epoch uint64) stream.Placement {
	return stream.Placement{Operator: "table", Partition: part, Epoch: epoch}
}

func readResults(r *Results) (map[int][]string, error) {
	all := map[int][]string{}
	err := r.Read("table", func(part int, chunk []byte) error {
		all[part] = append(all[part], string(chunk))
		return nil
	})
	return all, err
}

// TestResultsProperties saves, replaces and drops chunks at random and compares with slices.
func TestResultsProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := NewMemory()
		defer s.Close()
		r := ResultsOf(s, "job", "1")
		want := map[int][]string{}
		epochs := map[int]uint64{}
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			part := rapid.IntRange(0, 2).Draw(rt, "part")
			if rapid.Bool().Draw(rt, "opens") {
				epochs[part]++
				require.NoError(rt, r.Open(sinkAt(part, epochs[part])))
			}
			at, have := sinkAt(part, epochs[part]), want[part]
			if rapid.IntRange(0, 3).Draw(rt, "drops") == 0 {
				n := rapid.IntRange(0, len(have)).Draw(rt, "from")
				require.NoError(rt, r.Drop(at, uint64(n)))
				want[part] = have[:n]
				continue
			}
			for range rapid.SampledFrom([]int{1, 3, 300}).Draw(rt, "chunks") {
				require.NoError(rt, r.Save(at, uint64(len(want[part])), fmt.Append(nil, i, len(want[part]))))
				want[part] = append(want[part], string(fmt.Append(nil, i, len(want[part]))))
			}
		}
		got, err := readResults(r)
		require.NoError(rt, err)
		for part := range 3 {
			require.Equal(rt, append([]string(nil), want[part]...), got[part])
		}
	})
}

func TestResultsOfAZombieAreRefused(t *testing.T) {
	s := NewMemory()
	defer s.Close()
	r := ResultsOf(s, "job", "1")
	require.NoError(t, r.Open(sinkAt(0, 1)))
	require.NoError(t, r.Open(sinkAt(0, 2)))
	require.ErrorIs(t, r.Save(sinkAt(0, 1), 0, []byte("x")), ErrFenced)
	require.NoError(t, r.Save(sinkAt(0, 2), 0, []byte("x")))
	require.ErrorIs(t, r.Drop(sinkAt(0, 1), 0), ErrFenced)
	require.ErrorIs(t, r.Open(sinkAt(0, 1)), ErrFenced)
	require.NoError(t, r.Save(sinkAt(1, 1), 0, []byte("another partition")))
	got, err := readResults(r)
	require.NoError(t, err)
	require.Equal(t, map[int][]string{0: {"x"}, 1: {"another partition"}}, got)
}

func TestResultsOutliveTheStateOfTheirJob(t *testing.T) {
	s := NewMemory()
	defer s.Close()
	r := ResultsOf(s, "job", "1")
	require.NoError(t, r.Save(sinkAt(0, 1), 0, []byte("x")))
	require.NoError(t, DropJob(s, "job", "1"))
	got, err := readResults(r)
	require.NoError(t, err)
	require.Len(t, got, 1)

	other := ResultsOf(s, "job", "10")
	require.NoError(t, other.Save(sinkAt(0, 1), 0, []byte("of another run")))
	require.NoError(t, DropResults(s, "job", "1"))
	require.NoError(t, DropResults(s, "job", "1"))
	got, err = readResults(r)
	require.NoError(t, err)
	require.Empty(t, got)
	require.ErrorIs(t, r.Save(sinkAt(0, 7), 0, nil), ErrFenced, "who goes on is fenced for good")
	got, err = readResults(other)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestDamagedResultsAreNamed(t *testing.T) {
	s := NewMemory()
	defer s.Close()
	r := ResultsOf(s, "job", "1")
	for n := range uint64(3) {
		require.NoError(t, r.Save(sinkAt(0, 1), n, []byte{byte(n)}))
	}
	require.ErrorIs(t, r.Save(sinkAt(0, 1), 3, bytes.Repeat([]byte{1}, maxResult+1)), ErrTooLarge)
	require.NoError(t, r.Save(sinkAt(0, 1), 3, bytes.Repeat([]byte{1}, maxResult)))
	key := appendKey(nil, resultsPrefix("job", "1", "table", 0), kindResult, 1)
	put(t, s, key, []byte("rubbish"))
	_, err := readResults(r)
	require.ErrorIs(t, err, ErrDamaged)
	require.NoError(t, applyWait(s, &Batch{Owner: "x", Deletes: [][]byte{key}}))
	_, err = readResults(r)
	require.ErrorContains(t, err, "chunk 1 is missing")
	put(t, s, append(resultsPrefix("job", "1", "table", 0), kindResult), nil)
	_, err = readResults(r)
	require.ErrorContains(t, err, "malformed key")

	require.ErrorIs(t, ResultsOf(s, "no/job", "1").Read("table", nil), ErrName)
	require.ErrorIs(t, ResultsOf(s, "job", "").Open(sinkAt(0, 1)), ErrName)
	require.ErrorIs(t, r.Save(stream.Placement{Operator: ""}, 0, nil), ErrName)
	require.ErrorIs(t, r.Read("", nil), ErrName)
	require.ErrorIs(t, DropResults(s, "", "1"), ErrName)
}
