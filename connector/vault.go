package connector

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/afstream/afstream/stream"
)

// Vault keeps results where they outlive the process that made them; see backup.Results. What a partition of a sink has
// is a row of chunks, numbered from 0. The Placement names the partition and the incarnation that writes.
type Vault interface {
	// Open makes the incarnation the oldest that may still write for its partition, durably. What an earlier one is about
	// to write is refused from then on.
	Open(p stream.Placement) error
	// Save makes chunk n durable, which replaces one of that number if there is one, and waits for that. A chunk has at
	// most MaxChunk bytes.
	Save(p stream.Placement, n uint64, chunk []byte) error
	// Drop removes the chunks from number n on, durably.
	Drop(p stream.Placement, n uint64) error
	// Read calls take with each chunk that the sink of that name has, by partition and then by number. It is an error if
	// one is missing or damaged. take must not keep chunk.
	Read(sink string, take func(part int, chunk []byte) error) error
}

// MaxChunk is the most bytes a chunk of a [Vault] may have.
const MaxChunk = 256 << 10

// ErrVault is wrapped by errors about what was read from a [Vault] and cannot be used.
var ErrVault = errors.New("connector: malformed results")

// Keep has sinks that are opened from now on put what they are given into v and not into c, each partition for itself, so
// that it survives them: whatever fails, [Collector.Recall] finds each item that the sink's commits cover, once.
func (c *Collector[T]) Keep(v Vault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vault = v
}

// Recall puts into c what the sink of that name has kept in v, in place of what c held. The sink must have ended: before
// that, v may hold items that its next incarnation will drop, since it is given them again.
func (c *Collector[T]) Recall(v Vault, sink string) error {
	parts := map[int]*collected[T]{}
	wire := stream.NewWire[T]()
	err := readFrames(v, sink, func(part int, frame []byte) error {
		p := parts[part]
		if p == nil {
			p = &collected[T]{}
			parts[part] = p
		}
		items, err := wire.Decode(nil, frame)
		p.add(items)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the results of sink %q: %w", sink, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = parts
	return nil
}

// readFrames gives each frame of the sink's partitions to take.
func readFrames(v Vault, sink string, take func(part int, frame []byte) error) error {
	rest := map[int][]byte{} // what the chunks so far have begun
	err := v.Read(sink, func(part int, chunk []byte) error {
		left, err := unframe(append(rest[part], chunk...), func(frame []byte) error { return take(part, frame) })
		rest[part] = append(rest[part][:0], left...)
		return err
	})
	if err != nil {
		return err
	}
	for part, left := range rest {
		if len(left) > 0 {
			return fmt.Errorf("%w: partition %d ends within an item", ErrVault, part)
		}
	}
	return nil
}

// frameHead is how many bytes the length of a frame takes.
const frameHead = 4

// unframe gives each frame that b holds whole to take, and returns what is left.
func unframe(b []byte, take func(frame []byte) error) ([]byte, error) {
	for len(b) >= frameHead {
		n := uint64(binary.LittleEndian.Uint32(b))
		if n > uint64(len(b)-frameHead) {
			break
		}
		if err := take(b[frameHead : frameHead+n]); err != nil {
			return nil, err
		}
		b = b[frameHead+n:]
	}
	return b, nil
}

// vaultSink is a partition of a sink whose items go to a vault. Its items are frames in one row of bytes, which is cut into
// chunks; its state is the number of chunks that count. So what was flushed for a commit that was never made is dropped by
// the next incarnation, which is given those items again.
type vaultSink[T any] struct {
	wire stream.Wire[T]
	vaultPart
}

func newVaultSink[T any](v Vault) *vaultSink[T] {
	return &vaultSink[T]{wire: stream.NewWire[T](), vaultPart: vaultPart{v: v}}
}

// Write implements stream.Sink. What makes a whole chunk goes at once, so that memory stays bounded.
func (s *vaultSink[T]) Write(items []T) error {
	if len(items) == 0 {
		return nil
	}
	head := len(s.buf)
	buf, err := s.wire.Append(append(s.buf, make([]byte, frameHead)...), items)
	if err != nil {
		return err
	}
	s.buf = buf
	return s.framed(head)
}

// vaultPart is what a vaultSink knows without the type of its items.
type vaultPart struct {
	v      Vault
	at     stream.Placement
	ready  bool   // nothing beyond chunks is there
	chunks uint64 // saved
	buf    []byte // not saved yet
}

// framed writes the length of the frame whose head is at that place and which the buffer ends with.
func (s *vaultPart) framed(head int) error {
	n := len(s.buf) - head - frameHead
	if uint64(n) > 1<<32-1 {
		return fmt.Errorf("%w: a frame of %d bytes", ErrVault, n)
	}
	binary.LittleEndian.PutUint32(s.buf[head:], uint32(n))
	return s.save(MaxChunk)
}

// Open implements stream.Opener.
func (s *vaultPart) Open(_ context.Context, p stream.Placement) error {
	s.at = p
	return s.v.Open(p)
}

// prepare drops what an earlier incarnation has saved and not committed. It does so before the first write, and not before
// the state is restored: only then is known what counts.
func (s *vaultPart) prepare() error {
	if s.ready {
		return nil
	}
	err := s.v.Drop(s.at, s.chunks)
	s.ready = err == nil
	return err
}

// save saves chunks while there are at least so many bytes.
func (s *vaultPart) save(least int) error {
	if err := s.prepare(); err != nil {
		return err
	}
	saved := 0
	for len(s.buf)-saved >= least {
		chunk := s.buf[saved:min(len(s.buf), saved+MaxChunk)]
		if err := s.v.Save(s.at, s.chunks, chunk); err != nil {
			return err
		}
		s.chunks++
		saved += len(chunk)
	}
	s.buf = s.buf[:copy(s.buf, s.buf[saved:])]
	return nil
}

// Flush implements stream.Flusher.
func (s *vaultPart) Flush() error { return s.save(1) }

// Close implements stream.Sink.
func (s *vaultPart) Close() error { return s.Flush() }

// BackupState implements stream.BackupState: what counts is what was flushed.
func (s *vaultPart) BackupState(w *stream.StateWriter) error {
	w.PutUint64(0, s.chunks)
	return nil
}

// RestoreState implements stream.RestoreState.
func (s *vaultPart) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		_, n, err := r.Uint64()
		if err != nil {
			return err
		}
		s.chunks = n
	}
	if err := r.Err(); err != nil {
		return err
	}
	return s.prepare()
}

// SaveNote puts one value into v beside what sinks have there, under a name that no sink has: what an operator wants to say
// once, at its end. It replaces what was said before under that name and part, by whatever incarnation, so that all must say
// the same: a close under stream.EmitOnClose does. [Collector.Recall] reads notes as it reads items.
func SaveNote[T any](v Vault, name string, part int, note T) error {
	s := newVaultSink[T](v)
	s.at, s.ready = stream.Placement{Operator: name, Partition: part}, true // replaced chunk by chunk, and never missing
	if err := s.Write([]T{note}); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	return v.Drop(s.at, s.chunks)
}
