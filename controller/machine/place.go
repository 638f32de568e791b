package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/afstream/afstream/cluster"
)

// seat is a session that can take workers, with how many it has, those under way included.
type seat struct {
	*session
	slots, used int
	busy        int // those that have not finished, as if the moves under way had been made
}

// expect counts the move of a worker that has not left yet: its place is kept.
func (t *seat) expect(m *move, w *cluster.Worker) {
	if t.sessionKey == m.to {
		t.used++
		t.busy++
	}
	if (t.sessionKey == sessionKey{w.Node, w.Session}) {
		t.busy--
	}
}

// leave takes note that a worker gives its place up.
func (t *seat) leave(w *cluster.Worker) {
	t.used--
	if !w.Done {
		t.busy--
	}
}

// busier says whether a seat has more to do than another one, for its slots.
func (t *seat) busier(than *seat) bool { return t.busy*than.slots > than.busy*t.slots }

// emptied says that a session is to be emptied, and why, as messages go on after its name; empty if it is not.
func (m *Machine) emptied(s *session) string {
	switch {
	case m.drain[s.node]:
		return ", which is being drained"
	case s.beat != nil && s.beat.Ending:
		return ", which is about to end"
	}
	return ""
}

// seats returns the sessions that can be given workers, by name.
func (m *Machine) seats(now time.Time) []*seat {
	var seats []*seat
	by := make(map[sessionKey]*seat)
	for _, s := range m.sessions {
		if m.emptied(s) != "" || s.suspect(&m.c, now) || m.dead(s, now) != "" {
			continue
		}
		t := &seat{session: s, slots: s.beat.Slots}
		seats = append(seats, t)
		by[s.sessionKey] = t
	}
	count := func(w *cluster.Worker) {
		if t := by[sessionKey{w.Node, w.Session}]; t != nil && w.Node != "" {
			t.used++
			if !w.Done {
				t.busy++
			}
		}
	}
	for _, j := range m.jobs {
		if j.stored.State.Ended() {
			continue
		}
		if j.move != nil {
			for _, t := range seats {
				t.expect(j.move, &j.stored.Workers[j.move.worker])
			}
		}
		for i := range j.stored.Workers {
			count(&j.stored.Workers[i])
			if j.next != nil && j.next.Layout == j.stored.Layout && j.next.Workers[i].Epoch != j.stored.Workers[i].Epoch {
				count(&j.next.Workers[i]) // nobody knows yet which of the two it is
			}
		}
		if j.next != nil && j.next.Layout != j.stored.Layout {
			for i := range j.next.Workers {
				count(&j.next.Workers[i])
			}
		}
	}
	slices.SortFunc(seats, func(a, b *seat) int { return cmp.Compare(a.node, b.node) })
	return seats
}

// carriers returns the seats whose nodes carry a job's program.
func carriers(seats []*seat, spec *cluster.Spec) []*seat {
	return slices.DeleteFunc(slices.Clone(seats), func(t *seat) bool { return !t.carries(spec.Name, spec.Version) })
}

func free(seats []*seat) int {
	n := 0
	for _, t := range seats {
		n += max(0, t.slots-t.used)
	}
	return n
}

// seating gives places to workers of one job.
type seating struct {
	seats []*seat // of nodes that carry its program
	spec  *cluster.Spec
	near  map[near]int // how many workers of an operator a node has
}

type near struct{ operator, node string }

func newSeating(seats []*seat, j *cluster.Job) *seating {
	s := &seating{seats: carriers(seats, &j.Spec), spec: &j.Spec, near: map[near]int{}}
	for i := range j.Workers {
		if w := &j.Workers[i]; w.Node != "" {
			s.near[near{w.Operator, w.Node}]++
		}
	}
	return s
}

// best returns the place for a worker of an operator: on a node that the job prefers, with few of the same operator, so that one
// death costs it little, and with little load. Nil if there is none.
func (s *seating) best(operator string) *seat {
	var best *seat
	for _, t := range s.seats {
		if t.used < t.slots && (best == nil || s.compare(operator, t, best) < 0) {
			best = t
		}
	}
	return best
}

func (s *seating) compare(operator string, a, b *seat) int {
	return cmp.Or(
		cmp.Compare(s.far(a), s.far(b)),
		cmp.Compare(s.near[near{operator, a.node}], s.near[near{operator, b.node}]),
		cmp.Compare(a.used*b.slots, b.used*a.slots),
		cmp.Compare(a.node, b.node))
}

// of returns the place that a worker has, nil if that is none that could be given to one now.
func (s *seating) of(w *cluster.Worker) *seat {
	for _, t := range s.seats {
		if (t.sessionKey == sessionKey{w.Node, w.Session}) {
			return t
		}
	}
	return nil
}

// pays says whether a move of a worker is clearly worth while: a will still have as much to do as b, and neither is the operator
// crowded together nor the job taken from where it should be. So no move makes another one pay that undoes it.
func (s *seating) pays(operator string, a, b *seat) bool {
	return (a.busy-1)*b.slots >= (b.busy+1)*a.slots &&
		s.near[near{operator, b.node}] < s.near[near{operator, a.node}] && s.far(b) <= s.far(a)
}

// far is 0 for a node that the job prefers, else 1.
func (s *seating) far(t *seat) int {
	if slices.Contains(s.spec.Locality, t.node) {
		return 0
	}
	return 1
}

// take gives w the place: from then on it is another incarnation.
func (s *seating) take(w *cluster.Worker, t *seat) {
	w.Node, w.Session = t.node, t.id
	w.Epoch++
	t.used++
	if !w.Done {
		t.busy++
	}
	s.near[near{w.Operator, t.node}]++
}

// yields returns a running job that has to give its places up: several that have lost workers wait for slots, and might
// hold what the others wait for, all for ever. The one that was submitted last gives way, one at a time. Nil if none has to.
func (m *Machine) yields(now time.Time) *job {
	if now.Sub(m.yielded) < settling {
		return nil
	}
	var short []*job // oldest first
	for _, j := range m.inOrder() {
		if j.stored.State == cluster.Running && !j.waits.IsZero() && now.Sub(j.waits) >= settling {
			short = append(short, j)
		}
	}
	for i := len(short) - 1; i > 0; i-- {
		if short[i].next == nil && slices.ContainsFunc(short[:i], func(older *job) bool { return m.useful(short[i].stored, &older.stored.Spec) }) {
			m.yielded = now
			return short[i]
		}
	}
	return nil
}

// useful says whether a job has a worker on a node that carries another one's program.
func (m *Machine) useful(j *cluster.Job, to *cluster.Spec) bool {
	return slices.ContainsFunc(j.Workers, func(w cluster.Worker) bool {
		s := m.sessions[sessionKey{w.Node, w.Session}]
		return s != nil && s.beat != nil && s.carries(to.Name, to.Version)
	})
}
