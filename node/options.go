package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport/link"
	"github.com/afstream/afstream/worker"
)

var (
	// ErrTaken is wrapped by the error of Run if another process has the node's name.
	ErrTaken = errors.New("node: another process has the name")

	// ErrArguments is to be wrapped by errors of Program.Build that no other node and no other time would make good.
	ErrArguments = errors.New("node: arguments that cannot work")

	// ErrKilled, as the cause of the end of Run's context, has it end as a killed process would: it says no farewell, and its
	// record stays. For tests.
	ErrKilled = errors.New("node: killed")
)

// Program is a kind of job that the process can run parts of.
type Program struct {
	Name, Version string
	// Build makes the topology of a job from its arguments. All nodes must make the same of the same. It is called once for
	// each job that runs here, and again after an error if another worker is assigned.
	Build func(ctx context.Context, args []string) (*Blueprint, error)
}

// Blueprint is what a program makes of a job's arguments.
type Blueprint struct {
	Topology  *stream.Topology
	Guarantee worker.Guarantee
	Params    errorbound.Params
	Batch     uint64 // see worker.Config
	Pin       bool   // see worker.Config
	// Keep is told, before any worker of the job is loaded, where the results of sinks can be kept. May be nil, and is not
	// called for a job without a backup server.
	Keep func(store backup.Store, job worker.Job)
}

// Options set up a node.
type Options struct {
	// Name is what the cluster knows the node by. One process at a time has it.
	Name string
	// Slots is how many workers the node takes at a time; default 1. Controllers keep to it.
	Slots int
	// Cluster is the name of the cluster.
	Cluster string
	// Programs are the jobs that workers may be of.
	Programs []Program
	// Records and Messages are shared by all processes of the cluster.
	Records  cluster.Records
	Messages cluster.Messages
	// Bus carries what workers of different processes send each other. Without one all of a job must be here.
	Bus *link.Bus
	// OpenStore opens the store of a backup server, and may wait for it as long as ctx goes on, which ends the opening and not
	// the store. Jobs with one server share a store; for one with several it is called once per server, and again until that
	// answers.
	OpenStore func(ctx context.Context, backupServer string) (backup.Store, error)
	// Beat is how often the node says what it does; default 100 ms. Often enough that controllers miss it soon.
	Beat time.Duration
	// Lease is how long the node keeps its workers without having written its record; default 20 s. In a cluster of NATS servers it
	// may take 10 s until records can be written again after one of them has died.
	Lease time.Duration
	// Grace is how long the node waits, when Run's context ends, for its workers to be moved without loss; default 10 s. It needs
	// another node with free slots. Negative: it leaves at once.
	Grace time.Duration
	// Limits is what the system grants the process, in words; empty means what the node finds out itself.
	Limits string
	// Log takes what operators of the system may want to know; nil discards it.
	Log *slog.Logger
	// OnLog is given each line about a job besides, from level info on. It must not block. May be nil.
	OnLog func(job string, line cluster.Line)
}

// graceTime is how long workers may take to end once they are told to; only user code and stores can take longer.
const graceTime = 5 * time.Second

// withDefaults returns o with its zero fields filled in, or what is wrong with it.
func (o Options) withDefaults() (Options, error) {
	o.Slots, o.Beat, o.Lease = cmp.Or(o.Slots, 1), cmp.Or(o.Beat, 100*time.Millisecond), cmp.Or(o.Lease, 20*time.Second)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	faults := []error{cluster.CheckName("node", o.Name), cluster.CheckName("cluster", o.Cluster)}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("node: "+format, args...))
		}
	}
	fault(o.Slots < 1, "%d slots, want at least 1", o.Slots)
	fault(o.Beat < time.Millisecond, "a beat each %v, want at least 1ms between them", o.Beat)
	fault(o.Lease < 3*o.Beat, "a lease of %v, want at least three beats of %v", o.Lease, o.Beat)
	fault(o.Records == nil || o.Messages == nil, "Records and Messages are needed")
	seen := map[string]bool{}
	for _, p := range o.Programs {
		fault(p.Name == "" || p.Build == nil, "program %q has no name or cannot be built", p.Name)
		fault(seen[p.Name], "there are two programs %q", p.Name)
		seen[p.Name] = true
	}
	return o, errors.Join(faults...)
}

// subjects of the node's cluster.
func (o *Options) subjects() cluster.Subjects { return cluster.Subjects{Cluster: o.Cluster} }
