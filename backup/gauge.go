package backup

import (
	"sync"
	"time"
)

const (
	// farBytes is more than anything writes within gaugeInterval: a disk with so much room is not full that soon.
	farBytes      = reserveBytes + 4<<30
	gaugeInterval = 20 * time.Millisecond
)

// gauge asks how much room a disk has, and not for each of many small transactions if it has plenty: the system call would
// take a tenth of one. It is for one directory; any goroutine may ask.
type gauge struct {
	read func(dir string) (uint64, error)
	mu   sync.Mutex
	free uint64 // when it was last read
	at   time.Time
}

func (g *gauge) room(dir string) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free >= farBytes && time.Since(g.at) < gaugeInterval {
		return g.free, nil
	}
	free, err := g.read(dir)
	g.free, g.at = free, time.Now()
	if err != nil {
		g.free = 0
	}
	return free, err
}
