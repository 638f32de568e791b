package broker

import (
	"fmt"
	"sync"
)

// fault is a logger of a NATS server that keeps the first fatal fault, which the server reports nowhere else.
type fault struct {
	mu    sync.Mutex
	first string
}

func (f *fault) Fatalf(format string, v ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == "" {
		f.first = fmt.Sprintf(format, v...)
	}
}

// text is empty as long as there is none.
func (f *fault) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}

func (f *fault) Noticef(string, ...any) {}
func (f *fault) Warnf(string, ...any)   {}
func (f *fault) Errorf(string, ...any)  {}
func (f *fault) Debugf(string, ...any)  {}
func (f *fault) Tracef(string, ...any)  {}
