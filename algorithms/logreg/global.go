package logreg

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// sender is what Global needs of a *stream.Feedback[Model].
type sender interface{ Send(to int, m Model) }

// Global keeps the steps of all learners, whose sum is the model. It answers every update with what its sender does not
// know yet, and when the slowest learner has caught up tells all. It must have one partition. At the end of each window
// it emits the model, weights that are not 0 by ascending index, the same for the same state: it may be built with
// stream.EmitOnClose.
//
// It takes 8 bytes for each weight of each learner.
type Global struct {
	options Options
	width   int
	sums    *state.Array[float64] // learner by learner
	peers   []peer
	back    sender
	epoch   uint64
	changes *changes
}

// peer is what Global knows of a learner.
type peer struct {
	clock        uint64
	done         bool
	epoch, known uint64 // the Model that it has
}

// NewGlobal returns a Global of a model of zeros. It panics if o is not valid; see Options.Validate.
func NewGlobal(o Options) *Global {
	o = o.filled()
	width := int(o.bias()) + 1
	return &Global{
		options: o, width: width, epoch: 1, changes: newChanges(width), peers: make([]peer, o.Learners),
		sums: state.NewArray[float64](width*o.Learners, state.Options{Norm: errorbound.L2, Clear: o.Clear}),
	}
}

// Open implements stream.Opener.
func (g *Global) Open(_ context.Context, p stream.Placement) error {
	if p.Partitions != 1 {
		return fmt.Errorf("%w: the global model has %d partitions, want 1", ErrOptions, p.Partitions)
	}
	g.epoch = p.Epoch
	return nil
}

// SetFeedback implements stream.FeedbackSender. Without a way back Global answers nothing.
func (g *Global) SetFeedback(b *stream.Feedback[Model]) { g.back = b }

// Weight returns weight i of the model; 2^Bits is the bias.
func (g *Global) Weight(i uint32) float64 { return g.others(int(i), -1) }

// others returns the sum of the steps of all learners but one.
func (g *Global) others(i, but int) float64 {
	sum := 0.0
	for l := range g.peers {
		if l != but {
			sum += g.sums.At(l*g.width + i)
		}
	}
	return sum
}

// Process implements stream.Operator. The error wraps ErrMessage; nothing of the update has then been taken.
func (g *Global) Process(u Update, _ *stream.Emitter[Weight]) error {
	if err := g.check(&u); err != nil {
		return err
	}
	for k, i := range u.Index {
		at := u.Learner*g.width + int(i)
		if g.sums.At(at) != u.Sum[k] {
			g.sums.Set(at, u.Sum[k])
			if len(g.peers) > 1 {
				g.changes.add(i, u.Learner)
			}
		}
	}
	g.changes.commit()
	p := &g.peers[u.Learner]
	p.epoch, p.known = u.KnownEpoch, u.Known
	if u.More {
		return nil
	}
	before := g.slowest()
	p.clock, p.done = max(p.clock, u.Clock), u.Done
	if g.back == nil {
		return nil
	}
	caughtUp := g.options.Consistency != Asynchronous && g.slowest() > before
	for l := range g.peers {
		if (l == u.Learner || caughtUp) && !g.peers[l].done {
			g.back.Send(l, g.model(l))
		}
	}
	return nil
}

func (g *Global) check(u *Update) error {
	if u.Learner < 0 || u.Learner >= len(g.peers) || len(u.Index) != len(u.Sum) {
		return fmt.Errorf("%w: update of learner %d of %d, %d indices, %d sums", ErrMessage, u.Learner, len(g.peers), len(u.Index), len(u.Sum))
	}
	for k, i := range u.Index {
		if int(i) >= g.width || u.Sum[k]-u.Sum[k] != 0 {
			return fmt.Errorf("%w: update of weight %d of %d to %v", ErrMessage, i, g.width, u.Sum[k])
		}
	}
	return nil
}

// slowest returns the least clock of the learners that are not done, never if all are.
func (g *Global) slowest() uint64 {
	least := uint64(never)
	for _, p := range g.peers {
		if !p.done {
			least = min(least, p.clock)
		}
	}
	return least
}

// model returns what learner l does not know yet.
func (g *Global) model(l int) Model {
	p := g.peers[l]
	m := Model{Epoch: g.epoch, Version: g.changes.version, Slowest: g.slowest(), Yours: p.clock}
	if len(g.peers) == 1 { // there are no others
		m.Whole = true
		return m
	}
	add := func(i uint32) {
		m.Index = append(m.Index, i)
		m.Others = append(m.Others, g.others(int(i), l))
	}
	if p.epoch == g.epoch && g.changes.since(p.known, l, add) {
		return m
	}
	m.Whole = true
	for i := range g.width {
		if g.others(i, l) != 0 {
			add(uint32(i))
		}
	}
	return m
}

// CloseWindow implements stream.WindowCloser: it emits the model.
func (g *Global) CloseWindow(_ stream.Window, out *stream.Emitter[Weight]) error {
	for i := range g.width {
		if v := g.Weight(uint32(i)); v != 0 {
			out.Emit(Weight{uint32(i), v})
		}
	}
	return nil
}

// scale is by how much the model may move when the sums of all learners, taken as one vector, move by 1: a weight is a
// sum of as many of its elements as there are learners (Cauchy-Schwarz).
func (g *Global) scale() float64 { return math.Sqrt(float64(len(g.peers))) }

// Measure implements stream.Measurer. Alpha is not known: an update may change everything.
func (g *Global) Measure() stream.Measure {
	return stream.Measure{Beta: 1, Norm: errorbound.L2, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder: theta bounds the Euclidean distance of the model.
func (g *Global) SetTheta(theta float64) { g.sums.SetTheta(theta / g.scale()) }

// StateDivergence implements stream.StateDivergence. It is a distance, not the length of a path: an update that a failure
// loses does not stay lost, since the next for the same weights says everything.
func (g *Global) StateDivergence() float64 { return g.sums.StateDivergence() * g.scale() }

// BackupDurable implements stream.BackupDurable.
func (g *Global) BackupDurable() { g.sums.BackupDurable() }

// clocksKey is the key of the element that holds the clocks. Those of sums have 8 bytes.
const clocksKey = "clocks"

// BackupState implements stream.BackupState: the sums, or those that changed most, and all clocks.
func (g *Global) BackupState(w *stream.StateWriter) error {
	var clocks []byte
	for _, p := range g.peers {
		clocks = binary.LittleEndian.AppendUint64(clocks, p.clock<<1|flag(p.done))
	}
	w.Put([]byte(clocksKey), clocks)
	return g.sums.BackupState(w)
}

// RestoreState implements stream.RestoreState. A backup of another number of learners is an error, since the sums of one
// that is gone would stay in the model for ever.
func (g *Global) RestoreState(r *stream.StateReader) error {
	return g.sums.RestoreState(through(r, func(r *stream.StateReader, w *stream.StateWriter) error {
		if string(r.Key()) != clocksKey {
			if r.Deleted() {
				w.Delete(r.Key())
			} else {
				w.Put(r.Key(), r.Value())
			}
			return nil
		}
		if len(r.Value()) != 8*len(g.peers) {
			return fmt.Errorf("%w: clocks of %d bytes for %d learners", stream.ErrState, len(r.Value()), len(g.peers))
		}
		for l := range g.peers {
			v := binary.LittleEndian.Uint64(r.Value()[8*l:])
			g.peers[l] = peer{clock: v >> 1, done: v&1 != 0}
		}
		return nil
	}))
}
