package backup

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func applyNoted(s Store, b *Batch, notes ...Entry) error {
	done := make(chan error, 1)
	s.(Noting).ApplyNoted(b, notes, func(err error) { done <- err })
	return <-done
}

func notes(t *testing.T, s Store) []string {
	list := []string{}
	require.NoError(t, s.(Noting).Notes(func(k, v []byte) error {
		list = append(list, fmt.Sprintf("%s=%s", k, v))
		return nil
	}))
	return list
}

func note(k, v string) Entry { return Entry{Key: []byte(k), Value: []byte(v)} }

// A note is there exactly if its batch is, and neither sees the keys of the other.
func TestNotesShareTheFateOfTheirBatch(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		require.NoError(t, applyNoted(s, batch("o", 2, "k=1"), note("k", "n1"), note("l", "n2")))
		require.NoError(t, s.Fence("o", 2))
		require.ErrorIs(t, applyNoted(s, batch("o", 1, "k=2"), note("k", "zombie")), ErrFenced)
		require.Equal(t, []string{"k=n1", "l=n2"}, notes(t, s))
		require.Equal(t, []string{"k=1"}, contents(t, s, ""))

		require.NoError(t, applyNoted(s, batch("o", 2, "-k"), note("l", ""), note("m", "n3"), note("none", "")))
		require.Equal(t, []string{"k=n1", "m=n3"}, notes(t, s))
		require.Empty(t, contents(t, s, ""))
		require.ErrorIs(t, applyNoted(s, batch("o", 2), note("", "x")), ErrKey)
		require.ErrorIs(t, applyNoted(s, batch("o", 2), note("x", string(make([]byte, MaxNoteBytes)))), ErrTooLarge)
	})
}

// The largest batch has room for the largest notes, and so has the largest number of entries.
func TestNotesDoNotCountAgainstTheBatch(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		most := note("n", string(make([]byte, MaxNoteBytes-entryOverhead-1)))
		b := &Batch{Owner: "o", Puts: []Entry{{[]byte("v"), make([]byte, MaxBatchBytes-entryOverhead-1)}}}
		require.NoError(t, applyNoted(s, b, most))
		b = &Batch{Owner: "o"}
		for i := 0; b.Size()+entryOverhead+5 <= MaxBatchBytes; i++ {
			b.Puts = append(b.Puts, Entry{Key: fmt.Appendf(nil, "%05d", i)})
		}
		var many []Entry
		for i := 0; notesSize(many)+entryOverhead+4 <= MaxNoteBytes; i++ {
			many = append(many, note(fmt.Sprintf("%03d", i), "x"))
		}
		require.NoError(t, applyNoted(s, b, many...))
		require.Len(t, notes(t, s), 1+len(many))
	})
}

// Notes of a store on disk are found by the next process, in step with the keys.
func TestNotesAreDurable(t *testing.T) {
	dir := t.TempDir()
	s := openTestBadger(t, dir, BadgerOptions{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		n := []Entry{note("seq", fmt.Sprint(i))}
		s.(Noting).ApplyNoted(batch("o", 1, fmt.Sprintf("k=%d", i)), n, func(err error) {
			require.NoError(t, err)
			wg.Done()
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
	s = openTestBadger(t, dir, BadgerOptions{})
	require.Equal(t, []string{"seq=99"}, notes(t, s))
	require.Equal(t, []string{"k=99"}, contents(t, s, ""))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.(Noting).Notes(nil), ErrClosed)
}
