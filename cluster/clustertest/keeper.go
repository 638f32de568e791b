package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/afstream/afstream/cluster"
)

// keeper has all records that there ever were, and the logs. Net.mu guards it.
type keeper struct {
	past  []cluster.Record // the one of revision r is past[r-1]
	at    []time.Time
	byKey map[string][]uint64 // revisions of each key
	lines map[string][]cluster.Line
	gone  map[string]int // how many of these are forgotten
}

func newKeeper() keeper {
	return keeper{byKey: map[string][]uint64{}, lines: map[string][]cluster.Line{}, gone: map[string]int{}}
}

// get returns what a key was when the newest revision of all was now; the zero Record if it had never had a value.
func (k *keeper) get(key string, now uint64) cluster.Record {
	list := k.byKey[key]
	i := sort.Search(len(list), func(i int) bool { return list[i] > now })
	if i == 0 {
		return cluster.Record{}
	}
	return k.past[list[i-1]-1]
}

// now is the newest revision.
func (k *keeper) now() uint64 { return uint64(len(k.past)) }

// then is the newest revision of a while ago.
func (k *keeper) then(ago time.Duration) uint64 {
	t := time.Now().Add(-ago)
	return uint64(sort.Search(len(k.at), func(i int) bool { return k.at[i].After(t) }))
}

func (k *keeper) put(key string, value []byte) uint64 {
	revision := k.now() + 1
	k.past = append(k.past, cluster.Record{Key: key, Value: value, Revision: revision})
	k.at = append(k.at, time.Now())
	k.byKey[key] = append(k.byKey[key], revision)
	return revision
}

// Written is a change of a record, and when it was made.
type Written struct {
	cluster.Record
	At time.Time
}

// Written returns all changes of records after a revision, in their order: what really happened, whatever processes see of it.
func (n *Net) Written(after uint64) []Written {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Written
	for i, r := range n.keeper.past[after:] {
		all = append(all, Written{owned(r), n.keeper.at[int(after)+i]})
	}
	return all
}

// owned is a copy for the caller to keep.
func owned(r cluster.Record) cluster.Record {
	r.Value = bytes.Clone(r.Value)
	return r
}

// full is a copy that is not nil.
func full(value []byte) []byte { return append([]byte{}, value...) }

// Get is of cluster.Records.
func (p *Process) Get(ctx context.Context, key string) (cluster.Record, error) {
	var r cluster.Record
	err := p.request(ctx, Keeper, func() error {
		r = p.n.keeper.get(key, p.n.keeper.then(p.upTo(p.n.faults.Stale)))
		if r.Value == nil {
			return cluster.ErrNoRecord
		}
		return nil
	})
	if err != nil {
		return cluster.Record{}, fmt.Errorf("get %s: %w", key, err)
	}
	return owned(r), nil
}

// Create is of cluster.Records.
func (p *Process) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	value = full(value)
	return p.write(ctx, "create", key, func(now cluster.Record) ([]byte, bool) { return value, now.Value == nil })
}

// Update is of cluster.Records.
func (p *Process) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	value = full(value)
	return p.write(ctx, "update", key, func(now cluster.Record) ([]byte, bool) { return value, revision != 0 && now.Revision == revision })
}

// Delete is of cluster.Records.
func (p *Process) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := p.write(ctx, "delete", key, func(now cluster.Record) ([]byte, bool) { return nil, revision != 0 && now.Revision == revision })
	return err
}

// write puts the value that next makes of the newest record, unless that is not what it should be.
func (p *Process) write(ctx context.Context, what, key string, next func(now cluster.Record) ([]byte, bool)) (uint64, error) {
	var revision uint64
	err := p.request(ctx, Keeper, func() error {
		k := &p.n.keeper
		value, ok := next(k.get(key, k.now()))
		if !ok {
			return cluster.ErrConflict
		}
		revision = k.put(key, value)
		p.n.tell()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", what, key, err)
	}
	return revision, nil
}

// List is of cluster.Records.
func (p *Process) List(ctx context.Context, prefix string) ([]cluster.Record, error) {
	list := []cluster.Record{}
	err := p.request(ctx, Keeper, func() error {
		list = p.n.keeper.list(prefix, p.n.keeper.then(p.upTo(p.n.faults.Stale)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s*: %w", prefix, err)
	}
	return list, nil
}

func (k *keeper) list(prefix string, now uint64) []cluster.Record {
	list := []cluster.Record{}
	for key := range k.byKey {
		if r := k.get(key, now); strings.HasPrefix(key, prefix) && r.Value != nil {
			list = append(list, owned(r))
		}
	}
	slices.SortFunc(list, func(a, b cluster.Record) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// Watch is of cluster.Records.
func (p *Process) Watch(ctx context.Context, prefix string, changed func(cluster.Record), synced func()) error {
	told := uint64(0)
	for first := true; ; first = false {
		batch, err := p.hear(ctx, prefix, first, &told)
		err = p.dwell(ctx, err)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s*: %w", prefix, err)
		}
		for _, r := range batch {
			changed(r)
		}
		if first {
			synced()
		}
	}
}

// hear waits for news of records beyond revision told, and returns them: those that there are, at first.
func (p *Process) hear(ctx context.Context, prefix string, first bool, told *uint64) ([]cluster.Record, error) {
	n := p.n
	for {
		err := p.hold(ctx, watchPatience, func() (open, ready bool) {
			return n.reaches(Keeper, p.name), first || n.keeper.now() > *told
		})
		if err == nil {
			err = p.pass(ctx, p.slow())
		}
		if err != nil {
			return nil, err
		}
		if batch, ok, err := p.news(prefix, first, told); ok || err != nil {
			return batch, err
		}
	}
}

// news returns what is beyond revision told, unless the process was cut off meanwhile.
func (p *Process) news(prefix string, first bool, told *uint64) (batch []cluster.Record, ok bool, err error) {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.reaches(Keeper, p.name):
		return nil, false, nil
	case p.chance(n.faults.Fail):
		return nil, false, ErrUnreached
	}
	from := *told
	*told = n.keeper.now()
	if first {
		return n.keeper.list(prefix, *told), true, nil
	}
	return n.keeper.since(prefix, from, p.rnd.IntN(2) == 0), true, nil
}

// since returns the changes after a revision: the last one of each key, or all.
func (k *keeper) since(prefix string, revision uint64, all bool) []cluster.Record {
	var list []cluster.Record
	for _, r := range k.past[revision:] {
		if strings.HasPrefix(r.Key, prefix) && (all || k.get(r.Key, k.now()).Revision == r.Revision) {
			list = append(list, owned(r))
		}
	}
	return list
}

// Append is of cluster.Logs.
func (p *Process) Append(job string, l cluster.Line) error {
	p.send(func() {
		if p.n.reaches(p.name, Keeper) && !p.chance(p.n.faults.Lose) {
			p.n.keeper.lines[job] = append(p.n.keeper.lines[job], l)
			p.n.tell()
		}
	})
	return cluster.CheckName("job", job)
}

// Forget is of cluster.Logs.
func (p *Process) Forget(ctx context.Context, job string) error {
	if err := cluster.CheckName("job", job); err != nil {
		return err
	}
	err := p.request(ctx, Keeper, func() error {
		p.n.keeper.gone[job] = len(p.n.keeper.lines[job])
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete the log of job %s: %w", job, err)
	}
	return nil
}

// Read is of cluster.Logs.
func (p *Process) Read(ctx context.Context, job string, follow bool, each func(cluster.Line) error) error {
	n, told := p.n, 0
	for first := true; ; first = false {
		var lines []cluster.Line
		err := p.hold(ctx, watchPatience, func() (open, ready bool) {
			told = max(told, n.keeper.gone[job])
			lines = n.keeper.lines[job][told:]
			return n.reaches(Keeper, p.name), first || len(lines) > 0
		})
		if err == nil {
			err = p.pass(ctx, p.slow())
		}
		err = p.dwell(ctx, err)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log of job %s: %w", job, err)
		}
		told += len(lines)
		for _, l := range lines {
			if err := each(l); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
	}
}
