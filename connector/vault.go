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
	rest := map[int][]byte{} // what the chunks so far have begun
	wire := stream.NewWire[T]()
	err := v.Read(sink, func(part int, chunk []byte) error {
		p := parts[part]
		if p == nil {
			p = &collected[T]{}
			parts[part] = p
		}
		left, err := unframe(append(rest[part], chunk...), func(frame []byte) error {
			items, err := wire.Decode(nil, frame)
			p.add(items)
			return err
		})
		rest[part] = append(rest[part][:0], left...)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the results of sink %q: %w", sink, err)
	}
	for part, left := range rest {
		if len(left) > 0 {
			return fmt.Errorf("read the results of sink %q: %w: partition %d ends within an item", sink, ErrVault, part)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = parts
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
	v      Vault
	wire   stream.Wire[T]
	at     stream.Placement
	ready  bool   // nothing beyond chunks is there
	chunks uint64 // saved
	buf    []byte // not saved yet
}

func newVaultSink[T any](v Vault) *vaultSink[T] {
	return &vaultSink[T]{v: v, wire: stream.NewWire[T]()}
}

// Open implements stream.Opener.
func (s *vaultSink[T]) Open(_ context.Context, p stream.Placement) error {
	s.at = p
	return s.v.Open(p)
}

// prepare drops what an earlier incarnation has saved and not committed. It does so before the first write, and not before
// the state is restored: only then is known what counts.
func (s *vaultSink[T]) prepare() error {
	if s.ready {
		return nil
	}
	err := s.v.Drop(s.at, s.chunks)
	s.ready = err == nil
	return err
}

// Write implements stream.Sink. What makes a whole chunk goes at once, so that memory stays bounded.
func (s *vaultSink[T]) Write(items []T) (err error) {
	if len(items) == 0 {
		return nil
	}
	start := len(s.buf)
	s.buf = append(s.buf, make([]byte, frameHead)...)
	if s.buf, err = s.wire.Append(s.buf, items); err != nil {
		return err
	}
	n := len(s.buf) - start - frameHead
	if uint64(n) > 1<<32-1 {
		return fmt.Errorf("%w: %d items of %d bytes", ErrVault, len(items), n)
	}
	binary.LittleEndian.PutUint32(s.buf[start:], uint32(n))
	return s.save(MaxChunk)
}

// save saves chunks while there are at least so many bytes.
func (s *vaultSink[T]) save(least int) error {
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
func (s *vaultSink[T]) Flush() error { return s.save(1) }

// Close implements stream.Sink.
func (s *vaultSink[T]) Close() error { return s.Flush() }

// BackupState implements stream.BackupState: what counts is what was flushed.
func (s *vaultSink[T]) BackupState(w *stream.StateWriter) error {
	w.PutUint64(0, s.chunks)
	return nil
}

// RestoreState implements stream.RestoreState.
func (s *vaultSink[T]) RestoreState(r *stream.StateReader) error {
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
