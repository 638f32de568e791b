package connector

import (
	"io"
	"os"
	"sync"
)

// pumpSize is how much a pump reads at once.
const pumpSize = 64 << 10

// pump makes Read of any reader interruptible by Close, which for a terminal or for
// standard input nothing else does: they do not go through the runtime's poller.
//
// One goroutine reads ahead into one of two buffers while the other is being used. The
// pump owns it; it ends at the first error of the reader, or after Close as soon as the
// read under way returns. A read of a terminal may never return: then the goroutine stays
// until the process ends, at the cost of its buffers, and that one read's input is lost.
type pump struct {
	full   chan chunk
	empty  chan []byte
	closed chan struct{}
	once   sync.Once
	r      io.Reader

	cur  chunk // what Read is handing out
	used int
}

type chunk struct {
	buf []byte
	err error
}

func newPump(r io.Reader) *pump {
	p := &pump{
		full:   make(chan chunk), // unbuffered: what is in it is owned by nobody at Close
		empty:  make(chan []byte, 2),
		closed: make(chan struct{}),
		r:      r,
	}
	p.empty <- make([]byte, pumpSize)
	p.empty <- make([]byte, pumpSize)
	go p.run()
	return p
}

func (p *pump) run() {
	for {
		var buf []byte
		select {
		case buf = <-p.empty:
		case <-p.closed:
			return
		}
		n, err := p.r.Read(buf[:cap(buf)])
		select {
		case p.full <- chunk{buf[:n], err}:
		case <-p.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader. After Close it returns ErrClosed.
func (p *pump) Read(dst []byte) (int, error) {
	select {
	case <-p.closed:
		return 0, ErrClosed
	default:
	}
	for p.used == len(p.cur.buf) {
		if p.cur.err != nil {
			return 0, p.cur.err
		}
		if p.cur.buf != nil {
			p.empty <- p.cur.buf // never blocks: there are two buffers and two places
		}
		select {
		case p.cur = <-p.full:
			p.used = 0
		case <-p.closed:
			p.cur, p.used = chunk{}, 0
			return 0, ErrClosed
		}
	}
	n := copy(dst, p.cur.buf[p.used:])
	p.used += n
	return n, nil
}

// Close interrupts Read and closes the reader if it can be closed.
func (p *pump) Close() (err error) {
	p.once.Do(func() {
		close(p.closed)
		if c, ok := p.r.(io.Closer); ok {
			err = c.Close()
		}
	})
	return err
}

// lateFile is a file that is opened by its first Read: opening a named pipe waits for
// somebody to write to it, which must not keep anybody else waiting.
type lateFile struct {
	path string

	mu     sync.Mutex // guards what follows
	f      *os.File
	closed bool
}

// Read implements io.Reader.
func (l *lateFile) Read(p []byte) (int, error) {
	f, err := l.file()
	if err != nil {
		return 0, err
	}
	return f.Read(p)
}

// file returns the file and opens it if need be. Only the reading goroutine opens.
func (l *lateFile) file() (*os.File, error) {
	l.mu.Lock()
	f, closed := l.f, l.closed
	l.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if f != nil {
		return f, nil
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		f.Close()
		return nil, ErrClosed
	}
	l.f = f
	return f, nil
}

// Close closes the file if it is open, which interrupts Read of a pipe.
func (l *lateFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
