package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/job"
)

const (
	// barAfter is how long a job runs before it gets a bar: what is over sooner needs none.
	barAfter = time.Second
	barEvery = 100 * time.Millisecond
)

// screen shows events and log lines and, on a terminal, progress as a bar below them. The bar is drawn by a goroutine of
// its own, so that the job only stores numbers; close ends it.
type screen struct {
	w io.Writer

	phase       atomic.Pointer[job.Phase]
	done, total atomic.Int64

	mu  sync.Mutex // guards w and bar
	bar *progressbar.ProgressBar

	stop    chan struct{}
	closing sync.Once
	drawing sync.WaitGroup
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, stop: make(chan struct{})}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.drawing.Go(s.draw)
	}
	return s
}

// progress takes note of how far the job is. It runs once per slab.
func (s *screen) progress(phase job.Phase, done, total int64) {
	if p := s.phase.Load(); p == nil || *p != phase {
		s.phase.Store(&phase)
	}
	s.done.Store(done)
	s.total.Store(total)
}

// Write prints whole lines above the bar.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.w.Write(lines)
}

// event prints a failure or recovery.
func (s *screen) event(e controller.Event) { fmt.Fprintln(s, job.EventLine(e)) }

// close removes the bar and ends the goroutine that draws it. Closing twice is fine.
func (s *screen) close() {
	s.closing.Do(func() { close(s.stop) })
	s.drawing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

func (s *screen) clear() {
	if s.bar != nil {
		_ = s.bar.Clear() // a terminal that is gone needs no clearing
	}
}

func (s *screen) draw() {
	begin := time.NewTimer(barAfter)
	defer begin.Stop()
	select {
	case <-s.stop:
		return
	case <-begin.C:
	}
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	var shown job.Phase
	for {
		if p := s.phase.Load(); p != nil {
			s.update(*p, *p != shown)
			shown = *p
		}
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// update draws the bar, a new one for a new phase.
func (s *screen) update(phase job.Phase, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done, total := s.done.Load(), s.total.Load()
	if total <= 0 {
		total = -1 // of unknown size
	}
	if fresh {
		s.clear()
		s.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(s.w),
			progressbar.OptionSetDescription(string(phase)),
			progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(),
			// Otherwise a bar of unknown size has a goroutine that draws whenever it likes, for ever.
			progressbar.OptionSetSpinnerChangeInterval(0))
	}
	_ = s.bar.Set64(done) // it fails only beyond its end
}
