package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/afstream/afstream/cluster"
)

// keeper keeps the node's record. All of it belongs to its goroutine, and to leave after that has ended.
type keeper struct {
	h       *host
	key     string
	since   time.Time
	renewed func(session string, until time.Time, err error) // run by the host

	mine     map[string]bool // sessions of this process
	had      bool            // it has had the name
	wrote    string          // the session that was written last
	revision uint64          // of the record, as far as it is known to name a session of this process; 0: it has to be read
	highest  uint64          // of all revisions that were seen: what was read with a lower one is old
	renewal  uint64
	began    time.Time // when it was begun to write the record last
	over     string    // the session of a process that was found dead
}

// run writes the record three times per lease, until ctx ends or the name is gone.
func (k *keeper) run(ctx context.Context) {
	o := &k.h.o
	for failing := false; ctx.Err() == nil; {
		session := *k.h.claim.Load()
		tryCtx, cancel := context.WithTimeout(ctx, o.Lease+listenBeats*o.Beat)
		err := k.hold(tryCtx, session)
		cancel()
		pause := o.Lease / 3
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrTaken):
			k.h.do(func() { k.renewed("", time.Time{}, err) })
			return
		case errors.Is(err, errRemoved):
			k.h.do(func() { k.h.lose(session, err.Error()) })
			continue
		case err != nil:
			pause = o.Lease / 20
			if !failing {
				o.Log.Warn("the node's record cannot be written", "node", o.Name, "err", err)
			}
		default:
			until := k.began.Add(o.Lease)
			k.h.do(func() { k.renewed(session, until, nil) })
		}
		failing = err != nil
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-k.h.claimed:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// sleep waits and says whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hold writes the record so that it names session.
func (k *keeper) hold(ctx context.Context, session string) error {
	k.mine[session] = true
	if k.revision != 0 {
		switch err := k.write(ctx, session); {
		case err == nil:
			return nil
		case !errors.Is(err, cluster.ErrConflict):
			return err // and nobody knows whether it was written
		}
	}
	r, err := k.h.o.Records.Get(ctx, k.key)
	switch {
	case errors.Is(err, cluster.ErrNoRecord) && k.wrote == session:
		return errRemoved
	case errors.Is(err, cluster.ErrNoRecord):
		return k.create(ctx, session)
	case err != nil:
		return err
	case r.Revision < k.highest:
		return fmt.Errorf("read an old record of node %q", k.h.o.Name)
	}
	k.highest = r.Revision
	n, err := cluster.DecodeNode(r.Value)
	if err != nil {
		return err
	}
	if !k.mine[n.Session] && n.Session != k.over {
		if err := k.confront(ctx, r, n); err != nil {
			return err
		}
	}
	k.revision, k.renewal = r.Revision, n.Renewal
	return k.write(ctx, session)
}

// errRemoved says that somebody has deleted the node's record: to the others its session is dead.
var errRemoved = errors.New("its record was removed")

// write replaces the record of revision k.revision. After an error the record has to be read.
func (k *keeper) write(ctx context.Context, session string) error {
	revision, err := k.h.o.Records.Update(ctx, k.key, k.value(session), k.revision)
	k.note(session, revision, err)
	return err
}

// create makes the record where there is none.
func (k *keeper) create(ctx context.Context, session string) error {
	revision, err := k.h.o.Records.Create(ctx, k.key, k.value(session))
	k.note(session, revision, err)
	return err
}

func (k *keeper) value(session string) []byte {
	k.renewal, k.began = k.renewal+1, time.Now()
	n := cluster.Node{Name: k.h.o.Name, Session: session, Since: k.since, Renewal: k.renewal}
	return n.Encode()
}

func (k *keeper) note(session string, revision uint64, err error) {
	if err != nil {
		k.revision = 0
		return
	}
	k.revision, k.highest, k.had, k.wrote = revision, max(k.highest, revision), true, session
}

// listenBeats is how many beats a process that begins listens for another of its name.
const listenBeats = 10

// confront finds out what is with a record that names a session of another process. If this one had the name before, the
// other has taken it. Otherwise the other may have died: then it neither beats nor renews its record.
func (k *keeper) confront(ctx context.Context, r cluster.Record, n *cluster.Node) error {
	taken := fmt.Errorf("%w: node %q is session %s since %s: give one of the two another name, or end it",
		ErrTaken, n.Name, n.Session, n.Since.Format(time.DateTime))
	if k.had {
		return taken
	}
	heard := make(chan struct{}, 1)
	stop, err := k.h.o.Messages.Subscribe(k.h.o.subjects().Beat(k.h.o.Name), func(_ string, message []byte) {
		if b, err := cluster.DecodeBeat(message); err == nil && b.Session == n.Session && !b.Leaving {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	wait := time.NewTimer(listenBeats * k.h.o.Beat)
	defer wait.Stop()
	select {
	case <-heard:
		return taken
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
	}
	now, err := k.h.o.Records.Get(ctx, k.key)
	switch {
	case err != nil:
		return err
	case now.Revision != r.Revision:
		return fmt.Errorf("the record of node %q has changed: another process begins or ends", k.h.o.Name)
	}
	k.over = n.Session
	return nil
}

// leave takes the record away, so that a process that begins need not listen whether this one still lives.
func (k *keeper) leave() {
	if k.revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := k.h.o.Records.Delete(ctx, k.key, k.revision); err != nil {
		k.h.o.Log.Debug("the node's record stays", "node", k.h.o.Name, "err", err)
	}
}
