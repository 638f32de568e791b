package overnats

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/internal/broker"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // parallel tests wait more than they work
	goleak.VerifyTestMain(m)
}

// serve runs a NATS server with its store in dir; none if that is empty.
func serve(t testing.TB, address, dir string) *broker.Server {
	t.Helper()
	s, err := broker.Start(broker.Options{Address: address, Store: dir})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func address(s *broker.Server) string { return strings.TrimPrefix(s.URL(), "nats://") }

// connect connects as Open asks.
func connect(t testing.TB, s *broker.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func open(t testing.TB, s *broker.Server) *Fabric {
	t.Helper()
	f, err := Open(t.Context(), connect(t, s), "test", 1)
	require.NoError(t, err)
	return f
}
