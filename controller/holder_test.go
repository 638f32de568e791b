package controller_test

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// note is what a holder hands over: an item on its way to the partition that holds it.
type note struct {
	ID   uint64
	Hops uint8 // it is to go on so many times from there, to the next partition
}

// held is what a holder emits at the end of a window.
type held struct {
	Window, ID, Times uint64
	Last              bool
}

// tray is where items are: held, or kept back to be handed over.
type tray map[uint64]uint64

// holder holds every item in one partition of the worker that got it: the one that the item chooses, and from there
// some hops on if hops are free. Its plain state is each single item, so that what failures lose and repeat can be counted.
type holder struct {
	l          *ledger
	keep, hops int // how many items are kept back before any is handed over
	peers      *stream.Peers[note]
	held       tray
	kept       []uint64
	dirty      map[uint64]struct{} // keys of elements that have changed since the last backup
	since      float64
	foreign    *atomic.Uint64
}

func (h *holder) SetPeers(peers *stream.Peers[note]) {
	h.peers = peers
	if n := peers.Len(); n > 1 && peers.Hand((peers.Self()+1)%n, note{}) {
		h.fault("a value was handed over before the first item")
	}
}

func (h *holder) fault(format string, args ...any) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.fault(format, args...)
}

const keptBit = 1 << 63

func (h *holder) changed(key uint64) {
	h.dirty[key] = struct{}{}
	h.since++
}

func (h *holder) hold(id uint64) {
	h.held[id]++
	h.changed(id)
}

func (h *holder) Process(id uint64, _ *stream.Emitter[held]) error {
	if int(id)%h.peers.Len() == h.peers.Self() {
		h.hold(id)
		return nil
	}
	h.foreign.Add(1)
	h.kept = append(h.kept, id)
	h.changed(id | keptBit)
	if len(h.kept) > h.keep {
		h.handAll()
	}
	return nil
}

// handAll hands over as much of what is kept as it can.
func (h *holder) handAll() {
	rest := h.kept[:0]
	for _, id := range h.kept {
		if h.peers.Hand(int(id)%h.peers.Len(), note{ID: id, Hops: uint8(h.hops)}) {
			h.changed(id | keptBit)
		} else {
			rest = append(rest, id)
		}
	}
	h.kept = rest
}

func (h *holder) Receive(from int, n note) error {
	if from == h.peers.Self() || from >= h.peers.Len() {
		h.fault("value of peer %d of %d", from, h.peers.Len())
	}
	if n.Hops > 0 && h.peers.Hand((h.peers.Self()+1)%h.peers.Len(), note{ID: n.ID, Hops: n.Hops - 1}) {
		return nil
	}
	h.hold(n.ID)
	return nil
}

func (h *holder) Finish(stream.Window) (bool, error) {
	h.handAll()
	return len(h.kept) == 0, nil
}

func (h *holder) CloseWindow(w stream.Window, out *stream.Emitter[held]) error {
	if n := h.peers.Len(); len(h.kept) > 0 || n > 1 && h.peers.Hand((h.peers.Self()+1)%n, note{}) {
		h.fault("window %d closed with %d items kept, or one handed over after its end", w.Number, len(h.kept))
	}
	for _, id := range slices.Sorted(maps.Keys(h.held)) {
		if n := h.held[id]; n > 0 {
			out.Emit(held{Window: w.Number, ID: id, Times: n, Last: w.Last})
		}
	}
	clear(h.held)
	return nil
}

func (h *holder) StateDivergence() float64 { return h.since }

func (h *holder) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.L1, Combine: errorbound.Added}
}

func (h *holder) BackupState(w *stream.StateWriter) error {
	kept := map[uint64]uint64{}
	for _, id := range h.kept {
		kept[id|keptBit]++
	}
	if w.Whole() {
		for id := range h.held {
			h.dirty[id] = struct{}{}
		}
		for id := range kept {
			h.dirty[id] = struct{}{}
		}
	}
	for key := range h.dirty {
		w.PutUint64(key, h.held[key]+kept[key]) // 0 is as good as none
	}
	clear(h.dirty)
	h.since = 0
	return nil
}

func (h *holder) RestoreState(r *stream.StateReader) error {
	all := map[uint64]uint64{}
	for r.Next() {
		key, n, err := r.Uint64()
		if err != nil {
			return err
		}
		all[key] = n
	}
	for key, n := range all {
		for range n {
			if key&keptBit != 0 {
				h.kept = append(h.kept, key&^keptBit)
			} else {
				h.held[key]++
			}
		}
	}
	return r.Err()
}
