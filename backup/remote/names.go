package remote

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
)

// DefaultName is the name of a server that was given none.
const DefaultName = "main"

// minPayload is the smallest maximum payload of a NATS server that this protocol works with.
const minPayload = 16 << 10

// flushTime is how long sending what is buffered may take when something is opened or closed.
const flushTime = 5 * time.Second

var (
	// ErrNoAnswer is wrapped by errors of all methods of a Client whose server was silent for longer than
	// ClientOptions.Deadline. Whether a batch was applied is not known then; if it was, then before every later batch.
	ErrNoAnswer = errors.New("no answer from backup server")

	// ErrTwoServers is wrapped by the error of Serve if another server answers to the same name.
	ErrTwoServers = errors.New("another backup server of this name is running: stop it, or choose another name")

	// ErrReplaced is wrapped by the errors of a Client whose server was started on another store, or lost what it had
	// reported as durable. The state that the client relies on is gone; the job has to begin again.
	ErrReplaced = errors.New("backup server has lost its store")
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func checkNames(cluster, name string) error {
	var err error
	if !namePattern.MatchString(cluster) {
		err = fmt.Errorf("cluster %q: want 1 to 64 of A-Z a-z 0-9 _ -", cluster)
	}
	if !namePattern.MatchString(name) {
		err = errors.Join(err, fmt.Errorf("backup server %q: want 1 to 64 of A-Z a-z 0-9 _ -", name))
	}
	return err
}

// subject is where the server of that name listens.
func subject(cluster, name string) string { return "afstream." + cluster + ".backup." + name }

// replySubject is where a client listens: below the cluster, so that permissions can be given for it.
func replySubject(cluster string, client ident) string {
	return "afstream." + cluster + ".backup-reply." + client.String()
}

func checkPayload(nc *nats.Conn) error {
	if n := nc.MaxPayload(); n < minPayload && nc.IsConnected() {
		return fmt.Errorf("NATS server %s takes payloads of %d bytes: set its max_payload to at least %d", nc.ConnectedUrl(), n, minPayload)
	}
	return nil
}
