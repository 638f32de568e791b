package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// Allocation is how the Theta of an operator is divided among its workers.
type Allocation uint8

const (
	// Equal gives all workers the same part.
	Equal Allocation = iota
	// ByCost begins with equal parts and lets them follow the loads, measured while the job runs, so that all backups
	// together cost least: a worker whose state changes fast backs up less often than it would, an idle one pays for it.
	// The bound is the same. Only operators that gain from it are divided so: see worker.Worker.Divisible.
	ByCost
)

var allocations = [...]string{Equal: "equal", ByCost: "by-cost"}

// String returns the name used on the command line.
func (a Allocation) String() string { return allocations[a] }

// ParseAllocation is the inverse of String.
func ParseAllocation(s string) (Allocation, error) {
	if i := slices.Index(allocations[:], s); i >= 0 {
		return Allocation(i), nil
	}
	return 0, fmt.Errorf("controller: unknown allocation %q (%s)", s, strings.Join(allocations[:], ", "))
}

// division is the Theta of one operator that is divided by load. It belongs to the goroutine of RunLocal. The order of
// things is what keeps the bound:
//
//  1. what the ledger grants is durable (backup.SaveGrants) before any worker is told, so no grant can be made twice;
//  2. a worker counts on a raise at once, but the ledger counts a lowering only when the worker has confirmed that its state
//     is durable to within the lower theta; until then a failure costs the higher one;
//  3. a failure is in the ledger before the next incarnation is made, which starts with what the ledger gives it.
type division struct {
	balance
	node    *stream.Node
	slots   []*slot
	owner   string
	record  []byte  // of the ledger
	changes uint64  // told so far
	unit    float64 // what a partition's theta is for a share of 1
	room    []worker.Saved
}

// divide makes the divisions of all operators that gain from one. All workers are loaded, with equal shares.
func (r *run) divide() {
	if r.o.Allocate != ByCost || r.o.Store == nil {
		return
	}
	for _, n := range r.nodes {
		slots := r.byNode[n]
		m, ok := slots[0].loaded.Divisible()
		if !ok {
			continue
		}
		d := &division{
			node: n, slots: slots, owner: fmt.Sprintf("%s/%s/%s/shares", r.job.Name, r.job.Incarnation, n.Name),
			unit: r.o.Theta * n.Budget * errorbound.Share(m.Norm, m.Combine, n.Compute),
		}
		d.balance = newBalance(r.pace(), errorbound.NewLedger(r.o.Series, m.Norm, m.Combine, n.Workers), n.Workers, n.Compute, time.Now())
		for _, s := range slots {
			s.division = d
		}
		r.divisions = append(r.divisions, d)
	}
}

func (r *run) pace() pace {
	if r.o.pace.every > 0 {
		return r.o.pace
	}
	return usualPace
}

// rebalance looks at the loads and at what workers have confirmed.
func (r *run) rebalance(now time.Time) error {
	for _, d := range r.divisions {
		if err := d.look(r.o.Store, now); err != nil {
			return fmt.Errorf("divide theta of %s: %w", d.node.Name, err)
		}
	}
	return nil
}

func (d *division) look(store backup.Store, now time.Time) error {
	var changes []errorbound.Change
	for i, s := range d.slots {
		if s.loaded == nil {
			continue
		}
		d.room = s.loaded.Saved(d.room[:0])
		d.observe(i, d.room)
		changes = append(changes, d.ledger.Lowered(i, s.loaded.Obeyed())...)
	}
	more, err := d.decide(now)
	if err != nil {
		return err
	}
	return d.tell(store, append(changes, more...))
}

// tell makes the ledger durable and then tells the workers. One that is down will be told with its next incarnation.
func (d *division) tell(store backup.Store, changes []errorbound.Change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := d.save(store); err != nil {
		return err
	}
	for _, c := range changes {
		d.changes++
		if w := d.slots[c.Worker].loaded; w != nil {
			w.Reshare(c)
		}
	}
	return nil
}

func (d *division) save(store backup.Store) error {
	if checkInvariants {
		if err := d.ledger.Valid(); err != nil {
			return err
		}
	}
	var err error
	if d.record, err = d.ledger.AppendBinary(d.record[:0]); err != nil {
		return err
	}
	return backup.SaveGrants(store, d.owner, d.record)
}

// grant returns what the next incarnation of a worker starts with, nil for an equal share. dead is what failed; its failure
// is durable in the worker's record already.
func (d *division) grant(store backup.Store, s *slot, dead *worker.Autopsy) (*worker.Grant, error) {
	if d == nil {
		return nil, nil
	}
	if checkInvariants {
		if err := d.check(s, dead); err != nil {
			return nil, err
		}
	}
	changes := d.ledger.Failed(s.index)
	d.renew(s.index)
	if len(changes) == 0 { // else tell saves it
		if err := d.save(store); err != nil {
			return nil, err
		}
	}
	if err := d.tell(store, changes); err != nil {
		return nil, err
	}
	return &worker.Grant{Share: d.ledger.Share(s.index), Costs: d.ledger.Costs(s.index)}, nil
}

// summarise fills in what has become of the shares.
func (d *division) summarise() {
	t := d.slots[0].totals
	t.Shares, t.Changes = d.ledger.Shares(), d.changes
}

// check says whether a failure may cost more than the ledger is about to note.
func (d *division) check(s *slot, dead *worker.Autopsy) error {
	most := d.ledger.AtRisk(s.index) * d.unit
	for _, p := range dead.Partition {
		if p.Theta > most*(1+1e-9) {
			return fmt.Errorf("%w: I4: %s used theta %v, the ledger counts on %v", errorbound.ErrLedger, s.name(), p.Theta, most)
		}
	}
	return d.ledger.Valid()
}
