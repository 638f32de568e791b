// Package transport carries frames between workers. It decides nothing: it moves frames in order from one sending
// worker to one receiving worker, and acknowledgements the other way, until one of the two is gone.
//
// [Pipe] is the transport within a process: it hands over slabs. Both directions are lock-free rings, and a push or
// pop wakes the other side's [ringbuf.Parker], so a worker can wait for all its connections at once.
//
// Between processes frames travel as bytes (wire.go: [AppendFrame], [TakeFrame] and so on); package link carries them over
// NATS behind the same interfaces.
//
// A connection belongs to one incarnation of each side. After a failure the controller makes a new one, and whatever
// the old one still held is gone with it.
package transport
