package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/machine"
)

// Options configure a controller. Zero values of the times stand for what is given in brackets; all controllers of a
// cluster must have the same Lease.
type Options struct {
	Name     string // for people: it need not be different from others
	Cluster  string
	Records  cluster.Records
	Messages cluster.Messages
	// Lease is how long a leader leads after its last renewal [1.5 s]. The next one leads so much, and a little, after
	// the last one has died; a store that does not answer for so long costs a change of the leader.
	Lease time.Duration
	// Renew is how often the lease is renewed [a fifth of Lease].
	Renew time.Duration
	// Margin is how long before the end of its lease a leader stops, for clocks that go at different rates [a tenth of Lease].
	Margin time.Duration
	// Tick is how often the machine looks at what is known [20 ms].
	Tick    time.Duration
	Machine machine.Config
	// Drop deletes the backups of a job that has ended. It is called until it returns nil once, maybe again after
	// that. Nil if there is nothing to delete. It must return soon after ctx has ended.
	Drop func(ctx context.Context, j *cluster.Job) error
	// OpenBackups opens the backup servers that count of a job, so that the number of workers of its operators can change. Nil
	// if there are none: then it cannot. It must return soon after ctx has ended.
	OpenBackups func(ctx context.Context, j *cluster.Job) (backup.Store, error)
	Log         *slog.Logger
}

// withDefaults fills in what is left open and joins all faults.
func (o Options) withDefaults() (Options, error) {
	o.Lease = cmp.Or(o.Lease, 1500*time.Millisecond)
	o.Renew = cmp.Or(o.Renew, o.Lease/5)
	o.Margin = cmp.Or(o.Margin, o.Lease/10)
	o.Tick = cmp.Or(o.Tick, 20*time.Millisecond)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.OpenBackups == nil {
		o.Machine.Unscalable = cmp.Or(o.Machine.Unscalable, "the leading controller knows no backup servers")
	}
	faults := []error{cluster.CheckName("controller", o.Name), cluster.CheckName("cluster", o.Cluster)}
	if o.Renew < 0 || o.Margin < 0 || o.Tick < 0 || o.Lease < 2*o.Renew+o.Margin {
		faults = append(faults, fmt.Errorf("lease of %v, renewed every %v, ends %v early: want it to outlast two renewals", o.Lease, o.Renew, o.Margin))
	}
	if o.Records == nil || o.Messages == nil {
		faults = append(faults, errors.New("no connection to the cluster"))
	}
	if err := errors.Join(faults...); err != nil {
		return o, fmt.Errorf("start controller: %w", err)
	}
	return o, nil
}
