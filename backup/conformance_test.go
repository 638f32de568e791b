package backup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/storetest"
)

func TestMemoryIsAStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) backup.Store { return backup.NewMemory() })
}

func TestBadgerIsAStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) backup.Store {
		s, err := backup.OpenBadger(t.TempDir(), backup.BadgerOptions{})
		require.NoError(t, err)
		return s
	})
}
