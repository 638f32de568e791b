package link

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Defaults of [Config], and bounds that both ends rely on.
const (
	// DefaultBytes is the window in bytes.
	DefaultBytes = 4 << 20
	// DefaultMessages is the window in messages.
	DefaultMessages = 256
	// MaxMessages is the largest window in messages that an end may be given.
	MaxMessages = 1024
	// MaxBytes is the largest window in bytes that an end may be given: NATS, which drops what waits beyond 64 MiB, must
	// never come to that.
	MaxBytes = 16 << 20
	// DefaultBatch is the size at which a message is sent, although more waits.
	DefaultBatch = 64 << 10
	// DefaultLinger is how long a message may wait for company after the one before it.
	DefaultLinger = 200 * time.Microsecond
	// DefaultQueue is the room for frames or acknowledgements that are not in a message yet.
	DefaultQueue = 32
)

var (
	// ErrID is wrapped by errors about connection ids that cannot be used.
	ErrID = errors.New("link: connection id")
	// ErrClosed is returned by what needs an end, or a Bus, that was closed.
	ErrClosed = errors.New("link: closed")
)

// Config sets up one end of a connection. The zero value is right for nearly all. Both ends of a connection may differ.
type Config struct {
	// Bytes bounds the messages that were sent and that the peer's owner has not used yet; one message may reach beyond
	// it. Each of the two processes keeps at most that much. Small windows cannot fill the way: at 100 MB/s, 1 MB is
	// 10 ms. At most MaxBytes. Default DefaultBytes.
	Bytes int
	// Messages bounds the same in messages; at most MaxMessages. Default DefaultMessages.
	Messages int
	// Batch is how many bytes a message collects if more waits. Small ones cost more per byte. It gives way to the
	// max_payload of the server. Default DefaultBatch.
	Batch int
	// Linger is how long after a message the next may wait for more to share it. A message after a longer pause goes at
	// once, and so does a full one. Default DefaultLinger.
	Linger time.Duration
	// Queue is the room for frames (Dial) or acknowledgements (Listen) that wait to be packed. Default DefaultQueue.
	Queue int
	// Failed is told, once, why the connection cannot go on: an item that fits no message, items of another build, a NATS
	// connection that was closed. It is called on a goroutine of the link or on the owner's and must neither block nor
	// close the end. A peer that is silent is no failure. May be nil.
	Failed func(err error)
}

// withDefaults returns c with its zero fields filled in, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	for _, f := range []struct {
		name       string
		value      *int
		preset     int
		least, max int
	}{
		{"Bytes", &c.Bytes, DefaultBytes, 1, MaxBytes},
		{"Messages", &c.Messages, DefaultMessages, 1, MaxMessages},
		{"Batch", &c.Batch, DefaultBatch, 1, MaxBytes},
		{"Queue", &c.Queue, DefaultQueue, 1, 1 << 20},
	} {
		if *f.value == 0 {
			*f.value = f.preset
		}
		if *f.value < f.least || *f.value > f.max {
			faults = append(faults, fmt.Errorf("link: %s of %d, want %d to %d", f.name, *f.value, f.least, f.max))
		}
	}
	if c.Linger == 0 {
		c.Linger = DefaultLinger
	}
	if c.Linger < 0 || c.Linger > time.Second {
		faults = append(faults, fmt.Errorf("link: Linger of %v, want 0 to 1s", c.Linger))
	}
	return c, errors.Join(faults...)
}

var (
	validID     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	validPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64})*$`)
)
