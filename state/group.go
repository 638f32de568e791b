package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Member is what a Group can hold: every state of this package, and any other that accounts for the backup in flight by
// itself. One that also is a stream.Thresholder or a stream.Measurer is treated as such.
type Member interface {
	stream.StateDivergence
	stream.BackupState
	stream.RestoreState
	stream.BackupDurable
}

// Total is how the divergences of the members of a Group make one.
type Total uint8

const (
	// Largest: the divergence is the largest share that a member has used. Each may use all of theta times its weight.
	Largest Total = iota
	// Summed: the divergence is the sum of the shares, for members whose errors add up in the answer. Each may use an
	// equal part of theta times its weight.
	Summed
)

// Group makes one state of several, for an operator that needs more than one: one divergence, one backup. The zero Group
// has no members, takes the Largest, and is ready for Add.
//
// Members are measured in units of their own. A member of weight w that has diverged by d has used the share d/w: theta
// of the Group stands for w*theta of that member. So with weights of 1 and Largest, theta simply holds for each.
type Group struct {
	members []member
	total   Total
	scratch stream.StateWriter
}

type member struct {
	Member
	name   string
	weight float64
}

// NewGroup returns a Group without members.
func NewGroup(total Total) *Group { return &Group{total: total} }

// validMember is what a name may be: it is part of the keys of elements, up to the first slash.
var validMember = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Add adds a member under a name, which tells its elements in backups apart: it must stay the same from run to run. All
// members must be added before the Group is used. It panics if the name is taken or does not match
// [A-Za-z0-9_-]{1,64}, or if weight is not positive and finite.
func (g *Group) Add(name string, weight float64, m Member) {
	if g.find(name) >= 0 {
		panic(fmt.Errorf("%w: two members named %q", ErrOptions, name))
	}
	if !validMember.MatchString(name) {
		panic(fmt.Errorf("%w: member %q, a name must match %s", ErrOptions, name, validMember))
	}
	if !(weight > 0 && weight <= math.MaxFloat64) {
		panic(fmt.Errorf("%w: weight %v of member %q", ErrOptions, weight, name))
	}
	g.members = append(g.members, member{m, name, weight})
}

// SetTheta implements stream.Thresholder.
func (g *Group) SetTheta(theta float64) {
	if g.total == Summed { // any split would do; an equal one is fair in the unit of the weights
		theta /= float64(max(1, len(g.members)))
	}
	for _, m := range g.members {
		if t, ok := m.Member.(stream.Thresholder); ok {
			t.SetTheta(theta * m.weight)
		}
	}
}

// StateDivergence implements stream.StateDivergence, in the time that it takes each member.
func (g *Group) StateDivergence() float64 {
	total := 0.0
	for _, m := range g.members {
		total = g.with(total, m.StateDivergence()/m.weight)
	}
	return total
}

func (g *Group) with(total, share float64) float64 {
	if g.total == Summed {
		return total + share
	}
	return max(total, share)
}

// Measure implements stream.Measurer. Alpha is that of all members together, unknown if one is. Norm and Combine are
// such that errorbound.Share gives no partition more than any member allows: the states are Disjoint only if all
// members are, and of different norms the most cautious is taken. It is L1 for several Summed members, whatever their
// norms: one partition may spend the budget on one member and the next on another.
func (g *Group) Measure() stream.Measure {
	whole := stream.Measure{Combine: errorbound.Disjoint, Norm: errorbound.Max}
	known := true
	for i, m := range g.members {
		part := stream.Measure{} // safe: Added, alpha unknown
		if measurer, ok := m.Member.(stream.Measurer); ok {
			part = measurer.Measure()
		}
		known = known && part.Alpha > 0
		whole.Alpha = g.with(whole.Alpha, part.Alpha/m.weight)
		whole.Beta += part.Beta
		if part.Combine != errorbound.Disjoint {
			whole.Combine = errorbound.Added
		}
		if i == 0 {
			whole.Norm = part.Norm
		}
		whole.Norm = cautious(whole.Norm, part.Norm)
	}
	if !known {
		whole.Alpha = 0
	}
	if len(g.members) == 0 {
		return stream.Measure{}
	}
	if g.total == Summed && len(g.members) > 1 {
		whole.Norm = errorbound.L1
	}
	return whole
}

// cautious returns the norm under which n partitions get the smaller share.
func cautious(a, b errorbound.Norm) errorbound.Norm {
	switch {
	case a == b:
		return a
	case errorbound.Share(a, errorbound.Disjoint, 2) <= errorbound.Share(b, errorbound.Disjoint, 2):
		return a
	}
	return b
}

// BackupState implements stream.BackupState: the elements of every member, their keys prefixed by its name and a slash.
func (g *Group) BackupState(w *stream.StateWriter) error {
	var key []byte
	for _, m := range g.members {
		g.scratch.Reset(w.Whole())
		if err := m.BackupState(&g.scratch); err != nil {
			return fmt.Errorf("member %s: %w", m.name, err)
		}
		r := stream.NewStateReader(once(g.scratch.Bytes()))
		for r.Next() {
			key = append(append(append(key[:0], m.name...), '/'), r.Key()...)
			if r.Deleted() {
				w.Delete(key)
			} else {
				w.Put(key, r.Value())
			}
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("member %s: %w", m.name, err)
		}
	}
	return nil
}

// once returns the chunks of a reader that has one.
func once(chunk []byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(chunk) == 0 {
			return nil, io.EOF
		}
		c := chunk
		chunk = nil
		return c, nil
	}
}

// BackupDurable implements stream.BackupDurable.
func (g *Group) BackupDurable() {
	for _, m := range g.members {
		m.BackupDurable()
	}
}

// RestoreState implements stream.RestoreState. An element of a member that the Group does not have is an error that wraps
// stream.ErrState.
//
// Elements of different members may come in any order, so all members restore at once, each in a coroutine that is
// resumed when there is something for it: what is held in between is one chunk each.
func (g *Group) RestoreState(r *stream.StateReader) error {
	return g.deal(r, func(m Member) func(*stream.StateReader) error { return m.RestoreState })
}

// Adder is a Member that another state of its kind can be added to: every state of this package.
type Adder interface {
	AddState(r *stream.StateReader) error
}

// AddState adds to each member that of another Group, for stream.MergeState. All members must be Adders.
func (g *Group) AddState(r *stream.StateReader) error {
	for _, m := range g.members {
		if _, ok := m.Member.(Adder); !ok {
			return fmt.Errorf("%w: member %q, a %T, has no AddState", ErrOptions, m.name, m.Member)
		}
	}
	return g.deal(r, func(m Member) func(*stream.StateReader) error { return m.(Adder).AddState })
}

// deal gives each member the elements that are its own, all at once; read is what it takes them with.
func (g *Group) deal(r *stream.StateReader, read func(Member) func(*stream.StateReader) error) error {
	var feeds []*feed
	defer func() {
		for _, f := range feeds {
			f.stop()
		}
	}()
	for _, m := range g.members {
		feeds = append(feeds, newFeed(read(m.Member)))
	}
	for r.Next() {
		name, rest, _ := bytes.Cut(r.Key(), []byte("/"))
		i := g.find(string(name))
		if i < 0 {
			return fmt.Errorf("%w: element %q is of no member", stream.ErrState, r.Key())
		}
		if err := feeds[i].put(r, rest); err != nil {
			return fmt.Errorf("member %s: %w", name, err)
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	for i, f := range feeds {
		if err := f.finish(); err != nil {
			return fmt.Errorf("member %s: %w", g.members[i].name, err)
		}
	}
	return nil
}

// find returns the member of that name, -1 if there is none.
func (g *Group) find(name string) int {
	return slices.IndexFunc(g.members, func(m member) bool { return m.name == name })
}

// feedBytes is how much a feed collects before its member is resumed.
const feedBytes = 64 << 10

// feed hands elements to the RestoreState, or AddState, of one member, which runs in a coroutine between calls of resume.
type feed struct {
	chunk  *stream.StateWriter
	end    bool
	err    error // what it returned
	resume func() (struct{}, bool)
	stop   func()
}

// errStopped ends the reading of a member when another one's has failed. Nobody sees it.
var errStopped = errors.New("state: restore stopped")

func newFeed(read func(*stream.StateReader) error) *feed {
	f := &feed{chunk: stream.NewStateWriter(nil, false)}
	run := func(yield func(struct{}) bool) {
		f.err = read(stream.NewStateReader(func() ([]byte, error) {
			f.chunk.Reset(false) // what the last chunk held has been read
			if !yield(struct{}{}) {
				return nil, errStopped
			}
			if f.end && len(f.chunk.Bytes()) == 0 {
				return nil, io.EOF
			}
			return f.chunk.Bytes(), nil
		}))
	}
	f.resume, f.stop = iter.Pull(iter.Seq[struct{}](run))
	f.resume() // to the first call for a chunk
	return f
}

// put adds the current element of r under another key.
func (f *feed) put(r *stream.StateReader, key []byte) error {
	if r.Deleted() {
		f.chunk.Delete(key)
	} else {
		f.chunk.Put(key, r.Value())
	}
	if len(f.chunk.Bytes()) < feedBytes {
		return nil
	}
	f.resume()
	return f.err
}

// finish hands over what is left, and the end.
func (f *feed) finish() error {
	f.end = true
	for more := true; more; {
		_, more = f.resume()
	}
	return f.err
}
