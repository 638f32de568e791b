package remote

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/storetest"
)

// A client with its server is a store like any other.
func TestClientIsAStore(t *testing.T) {
	for name, local := range map[string]func(t testing.TB) backup.Store{
		"memory": func(testing.TB) backup.Store { return backup.NewMemory() },
		"badger": func(t testing.TB) backup.Store { return openBadger(t, t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB) backup.Store {
				url := startNATS(t, nil)
				serve(t, connect(t, url), local(t))
				return open(t, connect(t, url))
			})
		})
	}
	t.Run("small payload", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) backup.Store {
			url := startNATS(t, func(o *server.Options) { o.MaxPayload = minPayload })
			serve(t, connect(t, url), backup.NewMemory())
			return open(t, connect(t, url))
		})
	})
}
