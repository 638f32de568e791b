package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListen(t *testing.T) {
	b, err := Listen("0")
	require.NoError(t, err)
	defer b.Close()
	require.True(t, b.Local())
	require.True(t, strings.HasPrefix(b.URL(), "nats://127.0.0.1:"), b.URL())

	inside, err := b.Connect()
	require.NoError(t, err)
	defer inside.Close()
	outside, err := nats.Connect(b.URL())
	require.NoError(t, err)
	defer outside.Close()
	sub, err := inside.SubscribeSync("x")
	require.NoError(t, err)
	require.NoError(t, inside.Flush())
	require.NoError(t, outside.Publish("x", []byte("hello")))
	m, err := sub.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "hello", string(m.Data))

	_, err = Listen(strings.TrimPrefix(b.URL(), "nats://"))
	require.ErrorContains(t, err, "address already in use")
}

func TestListenOnWhatIsNoAddress(t *testing.T) {
	for _, address := range []string{"", "x", "127.0.0.1", "127.0.0.1:x", ":-1", ":65536", "1:2:3"} {
		_, err := Listen(address)
		require.ErrorIs(t, err, ErrAddress, address)
	}
	for address, local := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false} {
		b, err := Listen(address)
		require.NoError(t, err)
		require.Equal(t, local, b.Local(), address)
		b.Close()
	}
}
