package remote

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/afstream/afstream/backup"
)

// A scan is sent as chunks of at most chunkBytes, of which windowChunks may be under way. Both ends hold that much of it
// at most, however large it is. The largest records of a state (256 KiB) fit one chunk each, so that nobody has to put them together.
const (
	chunkBytes   = 260 << 10
	windowChunks = 4
)

// errGivenUp ends a scan that nobody waits for any more.
var errGivenUp = errors.New("scan was given up")

// serverScan is a scan under way. The goroutine that runs it adds chunks; the server's mutex guards it.
type serverScan struct {
	key   jobKey
	heard time.Time     // when its client was heard of last
	wake  chan struct{} // capacity 1: there may be room, or it was given up
	gone  bool
	taken uint64   // chunks that the client has consumed
	kept  [][]byte // the messages of those after them, to be sent again if lost
}

func (sc *serverScan) giveUp() {
	sc.gone = true
	sc.signal()
}

func (sc *serverScan) signal() {
	select {
	case sc.wake <- struct{}{}:
	default:
	}
}

// onScan starts a scan. A client that asks twice has lost the first chunks.
func (s *Server) onScan(c *call, reply string) {
	key := jobKey{reply, c.id}
	prefix := c.bytes
	s.mu.Lock()
	sc, started := s.scans[key], false
	if sc == nil {
		sc = &serverScan{key: key, heard: time.Now(), wake: make(chan struct{}, 1)}
		if started = s.goOff(func() { s.scan(sc, prefix) }); started {
			s.scans[key] = sc
		}
	}
	again := sc.again()
	s.mu.Unlock()
	if !started {
		s.sendAll(reply, again)
	}
}

// onTake lets a scan go on, sends lost chunks again, or ends it.
func (s *Server) onTake(c *call, reply string) {
	s.mu.Lock()
	sc := s.scans[jobKey{reply, c.id}]
	if sc == nil {
		s.mu.Unlock()
		if !c.over {
			s.send(reply, appendAnswer(nil, kindNoScan, &answer{id: c.id}))
		}
		return
	}
	var again [][]byte
	sc.heard = time.Now()
	if n := c.upTo - min(c.upTo, sc.taken); n > 0 && n <= uint64(len(sc.kept)) {
		sc.kept = append(sc.kept[:0:0], sc.kept[n:]...)
		sc.taken = c.upTo
		sc.signal()
	}
	if c.again {
		again = sc.again()
	}
	if c.over {
		sc.giveUp()
		delete(s.scans, sc.key)
	}
	s.mu.Unlock()
	s.sendAll(reply, again)
}

// again returns what to send again: if there is nothing yet, that the server is at work.
func (sc *serverScan) again() [][]byte {
	if len(sc.kept) == 0 {
		return [][]byte{appendAnswer(nil, kindBusy, &answer{id: sc.key.id})}
	}
	return slices.Clone(sc.kept)
}

func (s *Server) sendAll(reply string, frames [][]byte) {
	for _, frame := range frames {
		s.send(reply, frame)
	}
}

// scan runs a scan to its end. What it has sent is kept until the client has it, or is silent for too long.
func (s *Server) scan(sc *serverScan, prefix []byte) {
	w := chunkWriter{s: s, sc: sc, most: min(chunkBytes, s.link.payload()-chunkHead)}
	err := s.store.Scan(prefix, w.entry)
	if errors.Is(err, errGivenUp) || errors.Is(err, backup.ErrClosed) {
		return
	}
	w.result = resultOf(err)
	if w.flush(true) != nil {
		return
	}
	if w.index == 1 {
		// A client that loses the only chunk asks anew, so that a small scan is two messages.
		s.mu.Lock()
		delete(s.scans, sc.key)
		s.mu.Unlock()
	}
}

// chunkWriter cuts the stream of entries into chunks.
type chunkWriter struct {
	s      *Server
	sc     *serverScan
	most   int // bytes of a chunk
	buf    []byte
	index  uint64
	result result
}

func (w *chunkWriter) entry(key, value []byte) error {
	if size := 2*binary.MaxVarintLen64 + len(key) + len(value); len(w.buf)+size > w.most && size <= w.most {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value)))
	w.buf = append(append(w.buf, key...), value...)
	for len(w.buf) >= w.most {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	return nil
}

// flush sends the next chunk, if there is anything, as soon as there is room for it.
func (w *chunkWriter) flush(last bool) error {
	if len(w.buf) == 0 && !last {
		return nil
	}
	for {
		data := w.buf[:min(len(w.buf), w.most)]
		end := last && len(data) == len(w.buf)
		c := chunk{id: w.sc.key.id, index: w.index, last: end, data: data}
		if end {
			c.result = w.result
		}
		if err := w.emit(appendChunk(make([]byte, 0, chunkHead+len(data)), &c)); err != nil {
			return err
		}
		w.index++
		w.buf = append(w.buf[:0], w.buf[len(data):]...)
		if end || !last {
			return nil
		}
	}
}

func (w *chunkWriter) emit(frame []byte) error {
	for {
		w.s.mu.Lock()
		if w.sc.gone || w.s.closed {
			w.s.mu.Unlock()
			return errGivenUp
		}
		if len(w.sc.kept) < windowChunks {
			w.sc.kept = append(w.sc.kept, frame)
			w.s.mu.Unlock()
			w.s.send(w.sc.key.reply, frame)
			return nil
		}
		w.s.mu.Unlock()
		<-w.sc.wake // by a client, the sweep, or Close
	}
}
