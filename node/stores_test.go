package node

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

// nothing is a store of which a nil one is no nil Store.
type nothing struct{ backup.Store }

// TestStoreThatDidNotOpen: it is opened again by the next who wants it, and by nobody taken for open.
func TestStoreThatDidNotOpen(t *testing.T) {
	away := errors.New("away")
	var there backup.Store
	s := newStores(func(context.Context, string) (backup.Store, error) {
		if there == nil {
			return (*nothing)(nil), away
		}
		return there, nil
	})
	for range 2 {
		_, _, err := s.acquire(t.Context(), "main")
		require.ErrorIs(t, err, away)
		require.ErrorContains(t, err, `open backup server "main"`)
	}
	there = backup.NewMemory()
	store, release, err := s.acquire(t.Context(), "main")
	require.NoError(t, err)
	require.Equal(t, there, store)
	release()
	s.close()
}
