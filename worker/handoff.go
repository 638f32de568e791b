package worker

import "sync"

// handoff passes what rarely happens from any goroutine to a stage: new connections, ended writes. It has no bound and
// never blocks, so a caller can use it before the stage runs.
type handoff[T any] struct {
	mu    sync.Mutex
	items []T
}

// put hands over one item; the caller wakes the stage.
func (h *handoff[T]) put(item T) {
	h.mu.Lock()
	h.items = append(h.items, item)
	h.mu.Unlock()
}

// take returns everything that was handed over since.
func (h *handoff[T]) take() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	items := h.items
	h.items = nil
	return items
}
