package backup

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

const (
	maxLogCount = math.MaxInt32

	// MaxLogItems is the most that the items of one entry may take.
	MaxLogItems = MaxBatchBytes - 64<<10

	// minSweep is the queue length below which looking at every entry for covered ones is not worth it.
	minSweep = 64

	// maxFreeWriters bounds how many log writers with their buffers are kept for the next AppendLog.
	maxFreeWriters = 4
)

// LogEntry is a run of Count items of one channel in the item log: sequences [First, First+Count) of Epoch. Kind and
// Items are opaque here.
type LogEntry struct {
	Channel      uint64
	Epoch, First uint64
	Count        int // 0 to 2^31-1
	Kind         uint8
	Items        []byte // up to 960 KiB
}

func (e *LogEntry) end() Position { return Position{Epoch: e.Epoch, Seq: e.First + uint64(e.Count)} }

// AppendLog makes entries durable, in their order and after those of earlier calls, and calls done exactly once with
// the outcome, maybe from another goroutine and maybe before it returns. entries and their items may be used again as
// soon as AppendLog returns. It may be called while commits and other appends are in flight. Entries that do not fit
// one batch go into several: after an error some of them may be in the log.
//
// Entries that a commit covers are deleted with the commits that follow it.
//
// Errors: ErrNotLoaded, ErrTooLarge for an entry beyond its limits, and those of Store.Apply.
func (p *Partition) AppendLog(entries []LogEntry, done func(error)) {
	w, first, err := p.beginLog(entries)
	if err != nil {
		done(fmt.Errorf("append log %s: %w", p.owner, err))
		return
	}
	w.write(entries, first, done)
}

// beginLog reserves the numbers of entries and takes a writer.
func (p *Partition) beginLog(entries []LogEntry) (w *logWriter, first uint64, err error) {
	for i := range entries {
		e := &entries[i]
		if len(e.Items) > MaxLogItems || e.Count < 0 || uint64(e.Count) > maxLogCount || e.end().Seq < e.First {
			return nil, 0, fmt.Errorf("entry of %d items in %d bytes: %w", e.Count, len(e.Items), ErrTooLarge)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.loaded {
		return nil, 0, ErrNotLoaded
	}
	first = p.log.next
	for i := range entries {
		p.log.add(p.log.next, &entries[i])
	}
	if n := len(p.log.free); n > 0 {
		w, p.log.free = p.log.free[n-1], p.log.free[:n-1]
		return w, first, nil
	}
	w = &logWriter{p: p}
	w.onApplied = w.applied
	return w, first, nil
}

// ScanLog calls fn for each entry of the item log with something above the committed position of its channel, in the
// order in which they were appended. Items is valid only during the call. An error of fn ends the scan and is returned
// as it is. Entries that became damaged since Load are left out and reported at the end, as ErrDamaged.
func (p *Partition) ScanLog(fn func(LogEntry) error) error {
	p.mu.Lock()
	loaded := p.loaded
	committed := append([]Input(nil), p.committed...)
	p.mu.Unlock()
	if !loaded {
		return fmt.Errorf("scan log %s: %w", p.owner, ErrNotLoaded)
	}
	var bad []error
	err := p.scanLog(func(_ []byte, _ uint64, e *LogEntry, damage error) error {
		switch {
		case damage != nil:
			bad = append(bad, damage)
		case !covers(committed, e.Channel, e.end()):
			return fn(*e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(bad...)
}

// scanLog calls fn for each entry, or with the damage if it cannot be read.
func (p *Partition) scanLog(fn func(key []byte, n uint64, e *LogEntry, damage error) error) error {
	prefix := appendKey(nil, p.prefix, kindLog)
	var e LogEntry
	return p.store.Scan(prefix, func(key, value []byte) error {
		n, ok := lastNumber(key, len(prefix))
		if !ok {
			return fn(key, 0, nil, damaged(key, "malformed key"))
		}
		if why := decodeLogEntry(value, n, &e); why != "" {
			return fn(key, n, nil, damaged(key, why))
		}
		return fn(key, n, &e, nil)
	})
}

// itemLog is what is known of the entries in the store. It is guarded by Partition.mu.
type itemLog struct {
	next    uint64     // number of the next entry
	queue   []logPlace // entries not known to be covered, in order, from head on
	head    int
	sweepAt int // length of the queue from which the next sweep looks at all of it
	free    []*logWriter
}

// logPlace is where an entry is and from which position on it is not needed any more.
type logPlace struct {
	n, channel uint64
	end        Position
}

func (l *itemLog) add(n uint64, e *LogEntry) {
	l.queue = append(l.queue, logPlace{n: n, channel: e.Channel, end: e.end()})
	l.next = n + 1
}

// sweep moves the entries that inputs cover to the trash. Most are covered in the order in which they came, so it looks
// at the front of the queue; the rest is looked at whenever the queue has doubled, which costs a constant time per entry.
func (l *itemLog) sweep(inputs []Input, t *trash) {
	for ; l.head < len(l.queue) && l.queue[l.head].coveredBy(inputs); l.head++ {
		t.add(kindLog, 0, l.queue[l.head].n, l.queue[l.head].n+1)
	}
	left := len(l.queue) - l.head
	if left >= max(minSweep, l.sweepAt) {
		kept := l.queue[:0]
		for _, m := range l.queue[l.head:] {
			if m.coveredBy(inputs) {
				t.add(kindLog, 0, m.n, m.n+1)
			} else {
				kept = append(kept, m)
			}
		}
		l.queue, l.head, l.sweepAt = kept, 0, 2*len(kept)
	} else if l.head >= left {
		l.queue, l.head = append(l.queue[:0], l.queue[l.head:]...), 0
	}
}

func (m *logPlace) coveredBy(inputs []Input) bool { return covers(inputs, m.channel, m.end) }

// logWriter carries out one AppendLog. It is reused when all its batches are done.
type logWriter struct {
	p         *Partition
	onApplied func(error)
	batches   []Batch
	entries   []Entry
	buf       []byte

	mu      sync.Mutex
	waiting int // batches not done yet
	err     error
	done    func(error)
}

// write encodes entries and applies them, in one batch if they fit. The store keeps the order of Apply calls, so the
// batches need not wait for each other.
func (w *logWriter) write(entries []LogEntry, first uint64, done func(error)) {
	w.buf, w.entries, w.batches = w.buf[:0], w.entries[:0], w.batches[:0]
	for i := range entries {
		n := first + uint64(i)
		at := len(w.buf)
		w.buf = appendKey(w.buf, w.p.prefix, kindLog, n)
		mid := len(w.buf)
		w.buf = appendLogEntry(w.buf, n, &entries[i])
		w.entries = append(w.entries, Entry{Key: w.buf[at:mid:mid], Value: w.buf[mid:len(w.buf):len(w.buf)]})
	}
	w.split()
	w.done, w.err, w.waiting = done, nil, len(w.batches)
	// The last callback hands w back for reuse, maybe before the loop ends: nothing of w is touched after it.
	batches := w.batches
	for i := range batches {
		w.p.store.Apply(&batches[i], w.onApplied)
	}
}

// split cuts entries into batches; no entries make one empty batch, which keeps done in order.
func (w *logWriter) split() {
	size, from := 0, 0
	for i := range w.entries {
		n := len(w.entries[i].Key) + len(w.entries[i].Value) + entryOverhead
		if size+n > MaxBatchBytes {
			w.batches = append(w.batches, Batch{Owner: w.p.owner, Epoch: w.p.epoch, Puts: w.entries[from:i]})
			size, from = 0, i
		}
		size += n
	}
	w.batches = append(w.batches, Batch{Owner: w.p.owner, Epoch: w.p.epoch, Puts: w.entries[from:]})
}

func (w *logWriter) applied(err error) {
	w.mu.Lock()
	w.waiting--
	if w.err == nil {
		w.err = err
	}
	last, done, first := w.waiting == 0, w.done, w.err
	w.mu.Unlock()
	if !last {
		return
	}
	if first != nil {
		first = fmt.Errorf("append log %s: %w", w.p.owner, first)
	}
	w.p.recycle(w)
	done(first)
}

func (p *Partition) recycle(w *logWriter) {
	w.done = nil
	if cap(w.buf) > keepBuffer {
		w.buf = nil
	}
	p.mu.Lock()
	if len(p.log.free) < maxFreeWriters {
		p.log.free = append(p.log.free, w)
	}
	p.mu.Unlock()
}
