package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// TestStore: what was stored is there after a restart, in a directory that is made, and nobody else gets it meanwhile.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "one")
	for i := range 2 {
		b, err := Start(Options{Address: "0", Store: dir})
		require.NoError(t, err)
		nc, err := b.Connect()
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
		require.NoError(t, err)
		if i == 0 {
			_, err = kv.Create(t.Context(), "k", []byte("v"))
			require.NoError(t, err)
		}
		e, err := kv.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "v", string(e.Value()))

		_, err = Start(Options{Address: "0", Store: dir})
		require.ErrorIs(t, err, ErrInUse)
		require.ErrorContains(t, err, "stop that or choose another directory")
		nc.Close()
		b.Close()
	}
}

// TestStoreThatIsNone: a file where the directory should be, or below it, and an address that is taken.
func TestStoreThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Start(Options{Address: "0", Store: file})
	require.ErrorContains(t, err, "open the store of a NATS server in")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600))
	_, err = Start(Options{Address: "0", Store: dir})
	require.ErrorContains(t, err, "open the store of a NATS server in")
	require.ErrorContains(t, err, "choose another")

	b, err := Listen("0")
	require.NoError(t, err)
	defer b.Close()
	dir = t.TempDir()
	_, err = Start(Options{Address: strings.TrimPrefix(b.URL(), "nats://"), Store: dir})
	require.ErrorContains(t, err, "address already in use")
	again, err := Start(Options{Address: "0", Store: dir})
	require.NoError(t, err, "a failed start lets go of the store")
	again.Close()
}
