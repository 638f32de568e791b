package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

var (
	// ErrSettings is wrapped by the errors about settings that cannot work, found before anything is run or written.
	ErrSettings = errors.New("invalid settings")

	// ErrInterrupted is wrapped by the error of a Run whose context ended before the input did. The report that comes
	// with it holds what was finished by then.
	ErrInterrupted = errors.New("interrupted")

	// ErrBound is wrapped by the error of a Run that broke a bound it promised. The report that comes with it is whole.
	ErrBound = errors.New("bound broken")
)

// maxPartitions bounds Workers*Compute: each partition holds a state, and a share of Theta.
const maxPartitions = 1024

// Engine is how a job runs, whatever it computes. Start from the default of a job: the zero value has no workers.
type Engine struct {
	// Theta, L, Gamma and Series are the error that all failures together may cost; see errorbound.Params.
	errorbound.Params

	// Guarantee is what the job promises; default Approximate. With None nothing is backed up and a failure loses
	// whatever its worker held. The others have no use for Theta, L and Gamma. MiniBatch and UpstreamBackup need a source
	// that can be read again.
	Guarantee worker.Guarantee

	// Batch is how many items a partition processes between two backups under MiniBatch and UpstreamBackup, which alone
	// allow to set it; 0 means DefaultBatch. The more, the fewer stops, and the more is done again after a failure.
	Batch uint64

	// Allocate is how Theta is divided among the workers of each operator; default Equal. With ByCost the parts follow the
	// loads while the job runs, where an operator gains from it; guarantees other than Approximate have nothing to divide.
	Allocate controller.Allocation

	// Workers is how many workers run the operator that does the work, see each job; each is a unit of failure. Compute
	// is how many goroutines with a state of their own each of them has. More than there are cores does not help.
	Workers, Compute int

	// Pin ties compute goroutines to cores, by turns, where the system allows it; see controller.Options.
	Pin bool

	// PipeSources reads the input like a pipe even if it could be read again: what is in flight is then at risk and L
	// and Gamma bound its loss. Inputs that cannot be read again, such as standard input, are always read so.
	PipeSources bool

	// Faults are failures to inject.
	Faults []controller.Fault

	// RandomFaults is how many failures to inject beside those at random points of random workers, 0 to 10,000.
	RandomFaults int

	// Seed selects the random failures; the same seed draws the same. A job may use it for its input, too.
	Seed uint64

	// BackupDir is a directory for backups, made if missing. Empty means a temporary one, removed at the end, or by the
	// next run if the process is killed. What earlier runs left in it is dropped when a run starts.
	BackupDir string

	// BackupSync makes each backup wait for the disk, so that backups survive a power cut and not only the end of the
	// process. It costs a disk flush per group of backups.
	BackupSync bool

	// BackupServer keeps the backups in place of a directory, if it has a URL, so that they survive this machine. One run
	// of a job at a time may have its backups in a cluster: as a directory, it is cleared of what earlier runs left when
	// a run starts, and a run that is still alive then can write no more and fails.
	BackupServer remote.Address

	// Verify runs the input again without failures, computes the answer in another way as well, and compares: it takes
	// several times as long as the job. The input must be one that can be read again.
	Verify bool

	// Runner, if set, runs the job in place of this process: see Capture and Recalled. It is asked for the job itself; the
	// run without failures of a job that verifies is here in any case. Failures, and where backups are kept, mean nothing
	// to it.
	Runner Runner

	// Log takes what operators of the system may want to know; nil discards it.
	Log *slog.Logger

	// OnEvent is told of failures and recoveries as they happen; may be nil. It is called by one goroutine at a time.
	OnEvent func(controller.Event)

	// OnProgress is told what the job does (a phase of Phase...) and how much of its input it has read, in a unit that is
	// the input's own; total is 0 where the size is not known. It is called once per slab, perhaps from several
	// goroutines at once, and must be cheap; may be nil.
	OnProgress func(phase Phase, done, total int64)
}

// Phase is what a job is doing; its text is for people.
type Phase string

// Phases, in this order. The last two are only those of a job that verifies.
const (
	PhaseRun    Phase = "running"
	PhaseRepeat Phase = "repeating without failures"
	PhaseExact  Phase = "counting exactly"
)

// DefaultBatch is the default of Engine.Batch, in items.
const DefaultBatch = 1 << 16

// maxRandomFaults keeps a slip of the keyboard from asking for failures without end.
const maxRandomFaults = 10_000

// faults returns what is wrong with the settings, nil if nothing is.
func (e *Engine) faults() []error {
	var faults []error
	if !(e.Theta >= 0) { // so that NaN is a fault
		faults = append(faults, fmt.Errorf("theta %v: want a number of at least 0", e.Theta))
	} else if err := e.Params.Validate(); err != nil {
		faults = append(faults, err)
	}
	if e.RandomFaults < 0 || e.RandomFaults > maxRandomFaults {
		faults = append(faults, fmt.Errorf("%d random failures: want 0 to %d", e.RandomFaults, maxRandomFaults))
	}
	if e.Workers < 1 || e.Workers > maxPartitions {
		faults = append(faults, fmt.Errorf("%d workers: want 1 to %d", e.Workers, maxPartitions))
	}
	if most := maxPartitions / max(e.Workers, 1); e.Compute < 1 || e.Compute > most {
		faults = append(faults, fmt.Errorf("%d compute goroutines a worker: want 1 to %d", e.Compute, most))
	}
	if e.Batch != 0 && !e.batches() {
		faults = append(faults, fmt.Errorf("batches of %d items: only guarantees %v and %v make batches", e.Batch, worker.MiniBatch, worker.UpstreamBackup))
	}
	if e.PipeSources && e.batches() {
		faults = append(faults, fmt.Errorf("guarantee %v reads the input again after a failure: it cannot be read like a pipe", e.Guarantee))
	}
	if e.Guarantee == worker.None && (e.BackupDir != "" || e.BackupSync) {
		faults = append(faults, errors.New("guarantee none makes no backups: leave out where and how to keep them"))
	}
	if e.BackupServer.URL != "" {
		faults = append(faults, e.serverFaults()...)
	}
	return faults
}

// serverFaults returns what is wrong with the settings for a backup server.
func (e *Engine) serverFaults() (faults []error) {
	if e.Guarantee == worker.None {
		faults = append(faults, errors.New("guarantee none makes no backups: leave out the backup server"))
	}
	if e.BackupDir != "" || e.BackupSync {
		faults = append(faults, errors.New("backups are kept by a backup server or in a directory: leave out one, and give the backup server itself how to keep them"))
	}
	if err := e.BackupServer.Check(); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// batches says whether backups are made after a number of items.
func (e *Engine) batches() bool {
	return e.Guarantee == worker.MiniBatch || e.Guarantee == worker.UpstreamBackup
}

// batch returns that number.
func (e *Engine) batch() uint64 { return cmp.Or(e.Batch, DefaultBatch) }

// settingsError makes one error of all faults, nil if there are none.
func settingsError(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrSettings, errors.Join(faults...))
}

// run runs a topology as e says, whose sinks leave their results in results. measurable says whether the size of the input
// is known, which failures at a share of it need. The result may come with an error.
func (e *Engine) run(ctx context.Context, t *stream.Topology, results map[string]Results, measurable bool) (*controller.Result, error) {
	if e.Runner != nil {
		return e.Runner(ctx, e.blueprint(t, results))
	}
	injected, err := e.injected(t, measurable)
	if err != nil {
		return nil, err
	}
	o := controller.Options{
		Params: e.Params, Guarantee: e.Guarantee, Allocate: e.Allocate, Batch: e.batch(), PipeSources: e.PipeSources, Faults: injected,
		Pin: e.Pin,
		Log: e.Log, OnEvent: e.OnEvent, OnProgress: e.progress(PhaseRun),
	}
	if e.Guarantee == worker.None {
		return controller.RunLocal(ctx, t, o)
	}
	store, closeStore, err := e.openStore(ctx)
	if err != nil {
		return nil, err
	}
	if err := dropEarlier(store, t.Name()); err != nil {
		return nil, errors.Join(err, closeStore())
	}
	o.Store = store
	result, err := controller.RunLocal(ctx, t, o)
	return result, errors.Join(err, closeStore())
}

// repeat runs the topology once more, with no failures and no backups.
func (e *Engine) repeat(ctx context.Context, t *stream.Topology) (*controller.Result, error) {
	return controller.RunLocal(ctx, t, controller.Options{
		Guarantee: worker.None, Log: e.Log, OnProgress: e.progress(PhaseRepeat),
	})
}

func (e *Engine) progress(p Phase) func(done, total int64) {
	if e.OnProgress == nil {
		return nil
	}
	return func(done, total int64) { e.OnProgress(p, done, total) }
}

// openStore opens the store for backups. The function it returns closes it, and removes it if it was temporary.
func (e *Engine) openStore(ctx context.Context) (backup.Store, func() error, error) {
	if e.BackupServer.URL != "" {
		client, err := remote.Dial(ctx, e.BackupServer)
		if err != nil {
			return nil, nil, err
		}
		return client, client.Close, nil
	}
	dir, remove := e.BackupDir, func() error { return nil }
	if dir == "" {
		log := e.Log
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		temp, err := newTempDir(log)
		if err != nil {
			return nil, nil, err
		}
		dir, remove = temp.backups(), temp.remove
	}
	store, err := backup.OpenBadger(dir, backup.BadgerOptions{Sync: e.BackupSync, Logger: e.Log})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return store, func() error { return errors.Join(store.Close(), remove()) }, nil
}

// dropEarlier deletes what earlier runs of the job left behind: nothing can go on from it, since the process that
// supervised it is gone, and a directory that is used again and again must not grow.
func dropEarlier(store backup.Store, name string) error {
	for {
		incarnation, found, err := backup.LatestIncarnation(store, name)
		if err != nil || !found {
			return err
		}
		if err := backup.DropJob(store, name, incarnation); err != nil {
			return fmt.Errorf("drop backups of an earlier run: %w", err)
		}
	}
}
