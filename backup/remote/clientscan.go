package remote

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/afstream/afstream/backup"
)

// errNoScan says that the server has lost a scan.
var errNoScan = errors.New("no such scan")

// clientScan is a scan under way. The client's mutex guards it, but for events.
type clientScan struct {
	id     uint64
	prefix []byte
	// events has room for a window of chunks and for how the scan ended, so that the subscription never waits for the
	// function of a scan.
	events chan scanEvent
	next   uint64 // the chunk that comes next
	taken  uint64 // chunks consumed
	last   bool   // there is no more to come, or err was told
	timer  retryTimer
}

type scanEvent struct {
	chunk chunk
	err   error
}

// end tells the scan why it fails, unless everything has come.
func (sc *clientScan) end(err error) {
	if !sc.last {
		sc.last = true
		sc.events <- scanEvent{err: err}
	}
}

// question asks for what should have come, or only says that the scan is alive if its function takes its time.
func (sc *clientScan) question() []byte {
	if sc.next == 0 {
		return appendCall(nil, kindScan, &call{id: sc.id, bytes: sc.prefix})
	}
	return appendCall(nil, kindTake, &call{id: sc.id, upTo: sc.taken, again: sc.starved()})
}

// starved says whether the scan can do nothing until a chunk comes.
func (sc *clientScan) starved() bool { return !sc.last && sc.next == sc.taken }

func (c *Client) onChunk(k *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = 0
	sc := c.scans[k.id]
	if sc == nil || sc.last || k.index != sc.next || sc.next-sc.taken >= windowChunks {
		return
	}
	sc.next++
	sc.last = k.last
	sc.timer = retryTimer{}
	sc.events <- scanEvent{chunk: *k}
}

func (c *Client) onNoScan(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = 0
	if sc := c.scans[id]; sc != nil {
		sc.end(errNoScan)
	}
}

// Scan implements backup.Store. If the server is started again before anything was passed to fn, the scan begins anew;
// later it ends with backup.ErrInterrupted, since its snapshot is gone.
func (c *Client) Scan(prefix []byte, fn func(key, value []byte) error) error {
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return err
	}
	c.scanned++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.scanned--
		c.settled()
		c.mu.Unlock()
	}()
	if len(prefix) > backup.MaxKeyBytes {
		return nil // there is no such key
	}
	for {
		begun, err := c.scanOnce(prefix, fn)
		switch {
		case err != errNoScan:
			return err
		case begun:
			return fmt.Errorf("backup server %q: %w", c.o.Server, backup.ErrInterrupted)
		}
	}
}

// scanOnce carries out a scan. begun says whether fn was called.
func (c *Client) scanOnce(prefix []byte, fn func(key, value []byte) error) (begun bool, err error) {
	sc := &clientScan{prefix: prefix, events: make(chan scanEvent, windowChunks+1)}
	c.mu.Lock()
	c.lastID++
	sc.id = c.lastID
	c.scans[sc.id] = sc
	first := sc.question()
	c.mu.Unlock()
	c.publish(first)
	finished := false // the server has forgotten it, too
	defer func() {
		c.mu.Lock()
		delete(c.scans, sc.id)
		c.mu.Unlock()
		if !finished {
			c.publish(appendCall(nil, kindTake, &call{id: sc.id, over: true}))
		}
	}()
	entries := entryReader{fn: func(key, value []byte) error {
		begun = true
		return fn(key, value)
	}}
	for {
		e := <-sc.events
		if e.err != nil {
			return begun, e.err
		}
		if err := entries.read(e.chunk.data); err != nil {
			return begun, err
		}
		if e.chunk.last {
			finished = e.chunk.index == 0
			if err := e.chunk.result.err(c.o.Server); err != nil {
				return begun, err
			}
			return begun, entries.end()
		}
		c.take(sc)
	}
}

// take lets the server send more.
func (c *Client) take(sc *clientScan) {
	c.mu.Lock()
	sc.taken++
	frame := appendCall(nil, kindTake, &call{id: sc.id, upTo: sc.taken})
	c.mu.Unlock()
	c.publish(frame)
}

// entryReader takes the stream of entries apart that chunks cut anywhere.
type entryReader struct {
	fn   func(key, value []byte) error
	rest []byte // the beginning of an entry
}

func (e *entryReader) read(data []byte) error {
	joined := data
	if len(e.rest) > 0 {
		e.rest = append(e.rest, data...)
		joined = e.rest
	}
	for {
		key, value, n, err := cutEntry(joined)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		joined = joined[n:]
		if err := e.fn(key, value); err != nil {
			return err
		}
	}
	e.rest = append(e.rest[:0], joined...)
	return nil
}

// cutEntry returns the first entry and its length in b, 0 if it is not complete.
func cutEntry(b []byte) (key, value []byte, n int, err error) {
	keyLen, k := binary.Uvarint(b)
	valueLen, v := binary.Uvarint(b[max(k, 0):])
	switch {
	case k < 0 || v < 0 || k > 0 && (keyLen == 0 || keyLen > backup.MaxKeyBytes) || k > 0 && v > 0 && valueLen > backup.MaxBatchBytes:
		return nil, nil, 0, fmt.Errorf("%w: entry of a scan", errFrame)
	case k == 0 || v == 0:
		return nil, nil, 0, nil
	}
	at := k + v
	mid := at + int(keyLen)
	end := mid + int(valueLen)
	if end > len(b) {
		return nil, nil, 0, nil
	}
	return b[at:mid:mid], b[mid:end:end], end, nil
}

func (e *entryReader) end() error {
	if len(e.rest) > 0 {
		return fmt.Errorf("%w: a scan that ends within an entry", errFrame)
	}
	return nil
}
