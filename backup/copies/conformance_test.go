package copies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/storetest"
	"github.com/afstream/afstream/internal/thorough"
)

func openMemory(testing.TB) backup.Store { return backup.NewMemory() }

func openBadger(t testing.TB) backup.Store {
	s, err := backup.OpenBadger(t.TempDir(), backup.BadgerOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestCopiesAreAStore(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("%d in memory", n), func(t *testing.T) {
			storetest.Run(t, func(t testing.TB) backup.Store { return New(openMembers(t, n, openMemory), Options{}) })
		})
	}
	if thorough.Tests {
		t.Run("2 on disk", func(t *testing.T) {
			storetest.Run(t, func(t testing.TB) backup.Store { return New(openMembers(t, 2, openBadger), Options{}) })
		})
	}
	t.Run("memory and badger", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) backup.Store {
			return New([]Member{{"a", openMemory(t)}, {"b", openBadger(t)}}, Options{})
		})
	})
}

func openMembers(t testing.TB, n int, open func(testing.TB) backup.Store) (list []Member) {
	for i := range n {
		list = append(list, Member{Name: string(rune('a' + i)), Store: open(t)})
	}
	return list
}
