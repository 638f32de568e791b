package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

func TestAbandonDoesNotWaitForASilentServer(t *testing.T) {
	nc := connect(t, startNATS(t, nil))
	server, err := Serve(connect(t, nc.ConnectedUrl()), backup.NewMemory(), ServerOptions{Cluster: "test"})
	require.NoError(t, err)
	c := open(t, nc)
	require.NoError(t, server.Close())

	applied, fenced, scanned := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	c.Apply(put("o", 1, "k", "v"), func(err error) { applied <- err })
	go func() { fenced <- c.Fence("o", 2) }()
	go func() { scanned <- c.Scan(nil, func(_, _ []byte) error { return nil }) }()
	require.NoError(t, c.Abandon())
	require.ErrorIs(t, <-applied, backup.ErrClosed)
	require.ErrorIs(t, <-fenced, backup.ErrClosed)
	require.ErrorIs(t, <-scanned, backup.ErrClosed)
	require.NoError(t, c.Abandon())
	require.NoError(t, c.Close())
}
