package remote

import "github.com/nats-io/nats.go"

// link is what a server and a client need of a connection. Tests put a network in its place that loses messages.
type link struct {
	publish func(subject, reply string, frame []byte) error
	payload func() int // bytes that a message may have
	closed  func() bool
}

func newLink(nc *nats.Conn) link {
	return link{
		publish: func(subject, reply string, frame []byte) error {
			if reply == "" {
				return nc.Publish(subject, frame)
			}
			return nc.PublishRequest(subject, reply, frame)
		},
		payload: func() int { return max(int(nc.MaxPayload()), minPayload) },
		closed:  nc.IsClosed,
	}
}
