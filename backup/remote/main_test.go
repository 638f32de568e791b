package remote

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/backup"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashURLVariable) != "" {
		fmt.Fprintln(os.Stderr, crashServer()) // returns only if it fails
		os.Exit(1)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // parallel tests wait more than they work
	goleak.VerifyTestMain(m)
}

// startNATS runs a NATS server in this process.
func startNATS(t testing.TB, change func(*server.Options)) string {
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(10*time.Second))
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s.ClientURL()
}

// connect connects as this package's documentation asks.
func connect(t testing.TB, url string) *nats.Conn {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func serve(t testing.TB, nc *nats.Conn, store backup.Store) *Server {
	s, err := Serve(nc, store, ServerOptions{Cluster: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func open(t testing.TB, nc *nats.Conn) *Client {
	c, err := Open(t.Context(), nc, ClientOptions{Cluster: "test", retry: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func openBadger(t testing.TB, dir string) backup.Store {
	s, err := backup.OpenBadger(dir, backup.BadgerOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func applyWait(s backup.Store, b *backup.Batch) error {
	done := make(chan error, 1)
	s.Apply(b, func(err error) { done <- err })
	return <-done
}

func put(owner string, epoch uint64, key, value string) *backup.Batch {
	return &backup.Batch{Owner: owner, Epoch: epoch, Puts: []backup.Entry{{Key: []byte(key), Value: []byte(value)}}}
}

func contents(t testing.TB, s backup.Store, prefix string) []string {
	list := []string{}
	require.NoError(t, s.Scan([]byte(prefix), func(key, value []byte) error {
		list = append(list, fmt.Sprintf("%s=%s", key, value))
		return nil
	}))
	return list
}
