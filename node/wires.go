package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
	"github.com/afstream/afstream/transport/link"
	"github.com/afstream/afstream/worker"
)

// pipeSlabs is the room of a connection between two workers of this process.
const pipeSlabs = 32

// pipe is a connection between two incarnations in this process.
type pipe struct {
	sender, receiver *incarnation
	out              transport.Outbound
	in               transport.Inbound
}

// wire is one connection that an incarnation is to have: the end of a pipe, or, without one, a link to another process.
type wire struct {
	cluster.Connection
	edge    *stream.Edge
	sending bool // the incarnation is the sender
	pipe    *pipe
}

// slot is which of an incarnation's connections a wire is. A wire with another epoch of the peer takes the place of the one
// before it.
type slot struct {
	edge    *stream.Edge
	sending bool
	peer    int
}

func (w *wire) slot() slot {
	if w.sending {
		return slot{w.edge, true, w.Receiver}
	}
	return slot{w.edge, false, w.Sender}
}

// peerEpoch is that of the neighbour.
func (w *wire) peerEpoch() uint64 {
	if w.sending {
		return w.ReceiverEpoch
	}
	return w.SenderEpoch
}

// wire connects all incarnations of a job that run here with the incarnations of their neighbours that the record names.
func (h *host) wire(j *job) {
	for _, c := range j.workers {
		if c.w == nil {
			continue
		}
		node := c.prepared.node(c.place.operator)
		c.wires.set(h.wanted(j, c, node))
		h.connectBack(j, c, node)
	}
}

// wanted lists the connections of one incarnation, as far as its neighbours have incarnations to connect with.
func (h *host) wanted(j *job, c *incarnation, node *stream.Node) []wire {
	var all []wire
	add := func(e *stream.Edge, sending bool, peer *cluster.Worker) {
		w := wire{edge: e, sending: sending, Connection: cluster.Connection{Job: c.job, To: e.To.Name, Input: worker.InputOf(e)}}
		if sending {
			w.Sender, w.SenderEpoch, w.Receiver, w.ReceiverEpoch = c.place.index, c.epoch, peer.Index, peer.Epoch
		} else {
			w.Sender, w.SenderEpoch, w.Receiver, w.ReceiverEpoch = peer.Index, peer.Epoch, c.place.index, c.epoch
		}
		if h.mine(peer) {
			if w.pipe = h.pipe(j, &w, c, j.workers[place{peer.Operator, peer.Index}]); w.pipe == nil {
				return // the neighbour does not run yet, or no more
			}
		}
		all = append(all, w)
	}
	for _, e := range node.Inputs {
		for _, peer := range j.placed(e.From) {
			add(e, false, peer)
		}
	}
	for _, e := range node.Outputs {
		for _, peer := range j.placed(e.To) {
			add(e, true, peer)
		}
	}
	return all
}

// placed returns the workers of an operator that have an incarnation.
func (j *job) placed(n *stream.Node) []*cluster.Worker {
	var all []*cluster.Worker
	for i := range j.record.Workers {
		if w := &j.record.Workers[i]; w.Operator == n.Name && w.Epoch > 0 && w.Node != "" {
			all = append(all, w)
		}
	}
	return all
}

// pipe returns the connection of two incarnations of this process, nil if the peer does not run.
func (h *host) pipe(j *job, w *wire, c, peer *incarnation) *pipe {
	if peer == nil || peer.w == nil {
		return nil
	}
	if p := j.pipes[w.Connection]; p != nil {
		return p
	}
	p := &pipe{sender: peer, receiver: c}
	if w.sending {
		p.sender, p.receiver = c, peer
	}
	p.out, p.in = transport.Pipe(pipeSlabs, p.sender.w.DownstreamParker(), p.receiver.w.UpstreamParker())
	j.pipes[w.Connection] = p
	return p
}

// wirer makes the connections of one incarnation, in the order in which they are wanted.
type wirer struct {
	mu     sync.Mutex
	wanted []wire
	news   chan struct{}
}

func newWirer() *wirer { return &wirer{news: make(chan struct{}, 1)} }

// set says what the connections shall be. One that is not among them stays until another takes its place.
func (r *wirer) set(wanted []wire) {
	r.mu.Lock()
	same := slices.Equal(r.wanted, wanted)
	r.wanted = wanted
	r.mu.Unlock()
	if same {
		return
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *wirer) get() []wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// laid is a connection that was made.
type laid struct {
	epoch uint64 // of the peer
	close func()
}

// run makes connections until ctx ends, and then closes them.
func (r *wirer) run(ctx context.Context, c *incarnation, w *worker.Worker) {
	have := map[slot]laid{}
	defer func() {
		for _, l := range have {
			l.close()
		}
	}()
	for {
		select {
		case <-r.news:
		case <-ctx.Done():
			return
		}
		for _, want := range r.get() {
			old, ok := have[want.slot()]
			if ok && old.epoch >= want.peerEpoch() {
				continue
			}
			closing, err := c.lay(&want, w)
			if err != nil {
				w.Fail(fmt.Errorf("connect %s: %w", c.name(), err))
				return
			}
			have[want.slot()] = laid{want.peerEpoch(), closing}
			if ok {
				old.close()
			}
		}
	}
}

var errNoBus = errors.New("this process has no link to others")

// lay makes one connection and returns how to close this end of it.
func (c *incarnation) lay(w *wire, of *worker.Worker) (func(), error) {
	var out transport.Outbound
	var in transport.Inbound
	closing := func() {}
	cfg := link.Config{Failed: of.Fail}
	switch bus := c.h.o.Bus; {
	case w.pipe != nil:
		out, in = w.pipe.out, w.pipe.in
	case bus == nil:
		return nil, errNoBus
	case w.sending:
		o, err := bus.Dial(w.LinkID(), of.DownstreamParker(), cfg)
		if err != nil {
			return nil, err
		}
		out, closing = o, o.Close
	default:
		i, err := bus.Listen(w.LinkID(), of.UpstreamParker(), decode(w), cfg)
		if err != nil {
			return nil, err
		}
		in, closing = i, i.Close
	}
	if w.sending {
		of.AttachOutput(worker.Output{Edge: worker.OutputOf(w.edge), Receiver: w.Receiver, Out: out})
	} else {
		of.AttachInput(worker.Input{
			Edge: w.Input, Sender: w.Sender, Epoch: w.SenderEpoch, Replay: worker.ReplayOf(w.edge.From, c.prepared.blue.Guarantee), In: in,
		})
	}
	return closing, nil
}

// decode returns what reads the items of a connection.
func decode(w *wire) transport.Decode {
	input, decode := w.Input, w.edge.Decoder()
	return func(edge int, items []byte) (stream.Slab, error) {
		if edge != input {
			return nil, fmt.Errorf("%w: items of input %d on a connection of input %d", transport.ErrWire, edge, input)
		}
		return decode(items)
	}
}
