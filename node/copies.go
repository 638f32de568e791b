package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
)

// openStore opens where a job is backed up. Jobs with the same single server share its store. One with several servers has a
// store of its own, since each job has its own view of them.
//
// Which of the two it is follows from the spec and not from the view: what is written past the records of package copies
// would be unknown to those whose view is larger still.
func (h *host) openStore(ctx context.Context, record *cluster.Job, p *preparation) (err error) {
	if len(record.Spec.Backups) == 1 {
		p.store, p.release, err = h.stores.acquire(ctx, record.Spec.Backups[0])
		return err
	}
	if h.o.OpenStore == nil {
		return errNoServers(record.Spec.Backups[0])
	}
	s, err := copies.Open(ctx, record.View, h.o.OpenStore, copies.Options{
		Suspect: func(string, error) { h.do(func() { h.changed = true }) }, Log: h.o.Log.With("node", h.o.Name, "job", record.ID),
	})
	if err == nil {
		p.store, p.copies = backup.Store(s), s
	}
	return err
}

func errNoServers(server string) error {
	return hopeless(fmt.Errorf("this node knows no backup servers, such as %q", server))
}

// narrow drops the servers that do not count any more.
func (h *host) narrow(j *job) {
	p := j.prepared
	if p == nil || !p.isReady() || p.copies == nil {
		return
	}
	for _, name := range p.copies.View() {
		if slices.Contains(j.record.View, name) {
			continue
		}
		h.changed = true
		h.tasks.Go(func() { // what has waited for the server goes on in the midst of it
			if err := p.copies.Drop(name); err != nil {
				h.o.Log.Error("backup server cannot be dropped", "node", h.o.Name, "job", j.record.ID, "err", err)
			}
		})
	}
}

// giveUp closes a job's own store although its workers may not have ended yet: what they still want from it is worth nothing,
// and they might wait for a server that nobody drops any more.
func (h *host) giveUp(p *preparation) {
	h.tasks.Go(func() {
		<-p.ready
		if p.copies != nil {
			_ = p.copies.Close() // all that was to be durable has been waited for
		}
	})
}

// suspects returns the servers that fail jobs here.
func (h *host) suspects() (list []cluster.Suspect) {
	for id, j := range h.jobs {
		if j.prepared == nil || !j.prepared.isReady() || j.prepared.copies == nil {
			continue
		}
		for _, s := range j.prepared.copies.Suspicions() {
			list = append(list, cluster.Suspect{Job: id, Server: s.Name, Why: firstLine(s.Err), Lost: errors.Is(s.Err, remote.ErrReplaced)})
		}
	}
	slices.SortFunc(list, func(a, b cluster.Suspect) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Server, b.Server))
	})
	return list
}
