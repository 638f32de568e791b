// Package link is the transport between workers of different processes: a connection that loses nothing, doubles
// nothing and keeps the order, over NATS, which delivers a message at most once.
//
// A connection has an id that both processes know, which is used once: [Bus.Dial] gives the end of the sending worker, a
// [transport.Outbound], and [Bus.Listen] that of the receiving one, a [transport.Inbound]. It does not matter which
// comes first. Frames travel on the subject PREFIX.link.ID.data, acknowledgements on PREFIX.link.ID.ack; so
// the sending process needs the right to publish the first and to subscribe the second, the receiving one the reverse.
//
// # Protocol
//
// Both directions work alike. Contents (frames, or acknowledgements of workers) are packed into messages that are
// numbered from 1; what the owner of an end hands over while the one before is being written shares a message. Every
// message of either direction says, in its header, how far the other direction has arrived (got), how far its owner has
// used it (taken), and where the first gap ends. docs/design.md, "Between processes", lists the invariants.
//
//   - A message is kept until it was got, and sent again if the peer reports a gap there, if no answer comes within an
//     adaptive time, if the peer says hello, which is the first that it says, or after the connection to the server was
//     interrupted.
//   - No more messages and bytes may be beyond taken than the window allows: then [Outbound.Send] reports false and the
//     owner is woken when there is room. The window is far below the limits at which NATS calls a consumer slow.
//
// # Goroutines
//
// Each end has one goroutine, which owns both machines (outgoing, incoming), writes to NATS, which may block, and ends
// with Close. It is woken by the owner (ring of frames or acknowledgements), by NATS (mailbox), and by time. NATS runs one
// goroutine per end that fills the mailbox. The owner takes messages from a ring and decodes them itself. A Bus has one
// goroutine, which watches the connection to the server.
package link
