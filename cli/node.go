package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/node"
	"github.com/afstream/afstream/transport/link"
)

// defaultSlots is how many workers a node takes that was not told.
const defaultSlots = 8

func (s *shell) nodeCommand() *cli.Command {
	return &cli.Command{
		Name:  "node",
		Usage: "host workers of a cluster's jobs; list and empty nodes",
		Description: "Without a command below it, it joins the cluster and runs the workers that the controller assigns to it, until it is interrupted.\n" +
			"It carries the jobs of this program; nodes of one job have to be the same build.",
		Flags: slices.Concat([]cli.Flag{nameFlag("node", "of this machine"), slotsFlag(), graceFlag()}, keepFlags(), limitFlags(), clusterFlags(), []cli.Flag{logFlag()}),
		Subcommands: []*cli.Command{
			s.command(asked{name: "list", usage: "list the nodes of a cluster", description: "It takes a second, to hear from them.", run: listNodes}),
			s.command(asked{
				name: "drain", args: "NAME", most: 1, usage: "empty a node, and give it nothing more",
				description: "Its workers move one after the other, which costs nothing. One that cannot end without loss, or takes too long, is moved as\n" +
					"if it had failed, which costs a part of the error budget of its operator.", run: drainNode,
			}),
			s.command(asked{name: "undrain", args: "NAME", most: 1, usage: "give a drained node work again", run: undrainNode}),
		},
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c)
			}
			asked, err := readLimits(c)
			if err != nil {
				return err
			}
			return s.process(c, "afstream node", func(ctx context.Context, p *process) (err error) {
				granted := asked.hold(p.name, p.log)
				stop, err := p.keep(c)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, stop()) }()
				fmt.Fprintf(s.stderr, "node %q of cluster %q takes %d workers\n", p.name, p.at.Cluster, c.Int("slots"))
				return p.node(ctx, node.Options{Name: p.name, Slots: c.Int("slots"), Grace: c.Duration("grace"), Limits: granted}, s.jobs)
			})
		},
	}
}

// nameFlag names a process.
func nameFlag(kind, usual string) cli.Flag {
	return &cli.StringFlag{
		Name: "name", Category: categoryCluster, EnvVars: env("name"), DefaultText: "that " + usual,
		Usage: "`NAME` of this " + kind + ", 1 to 64 of A-Z a-z 0-9 _ -, which no other one of the cluster has",
	}
}

// slotsFlag says how many workers a node takes.
func slotsFlag() cli.Flag {
	return &cli.IntFlag{
		Name: "slots", Value: defaultSlots, Category: categoryCluster, EnvVars: env("slots"),
		Usage: "workers, of all jobs, that the node takes at a time; those of sources, merges and sinks count, too",
	}
}

// graceFlag says how long a node waits for its workers to move.
func graceFlag() cli.Flag {
	return &cli.DurationFlag{
		Name: "grace", Value: 10 * time.Second, Category: categoryCluster, EnvVars: env("grace"),
		Usage: "how long the node, when it is interrupted, waits for its workers to move to others without loss; 0 does not wait",
	}
}

// keepFlags make a node a backup server, too.
func keepFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "backup-dir", Category: categoryTolerate, EnvVars: env("backup-dir"), DefaultText: "it keeps none",
			Usage: "be a backup server, too, of the name of the node, with the backups in this `DIRECTORY`, made if missing: jobs that are submitted with --backup-name NODE survive that processes die, and with several of them the loss of a machine",
		},
		&cli.BoolFlag{
			Name: "backup-sync", Category: categoryTolerate, EnvVars: env("backup-sync"),
			Usage: "wait for the disk with each group of backups that --backup-dir keeps, so that they survive a power cut of this machine",
		},
	}
}

// keep serves the node's own backup directory, if it has one, until stop is called.
func (p *process) keep(c *cli.Context) (stop func() error, err error) {
	dir := c.String("backup-dir")
	if dir == "" {
		return func() error { return nil }, nil
	}
	nc, _, err := connect(c, "afstream backup server", p.log)
	if err != nil {
		return nil, err
	}
	unserve, err := keepBackups(nc, dir, c.Bool("backup-sync"), remote.ServerOptions{Cluster: p.at.Cluster, Name: p.name, Logger: p.log})
	if err != nil {
		nc.Close()
		return nil, err
	}
	fmt.Fprintf(p.stderr, "backup server %q of cluster %q serves %s\n", p.name, p.at.Cluster, dir)
	return func() error {
		defer nc.Close()
		return unserve()
	}, nil
}

// node runs a node until ctx ends, and then for as long as its workers take to move, but no longer than o.Grace. It fills in the rest
// of o.
func (p *process) node(ctx context.Context, o node.Options, jobs []Job) error {
	if o.Grace <= 0 {
		o.Grace = -1
	}
	m, err := join(ctx, p.nc, p.at, 0)
	if err != nil {
		return err
	}
	bus, err := link.NewBus(p.nc, m.subjects().Prefix())
	if err != nil {
		return err
	}
	o.Cluster, o.Programs = p.at.Cluster, programs(jobs)
	o.Records, o.Messages, o.Bus, o.OpenStore = m.records, m.messages, bus, m.openStore
	o.Log, o.OnLog = p.log, func(job string, l cluster.Line) {
		if err := m.logs.Append(job, l); err != nil {
			p.log.Debug("line of a job's log is lost", "job", job, "err", err)
		}
	}
	err = node.Run(ctx, o)
	bus.Close()
	return err
}

// process is what controllers and nodes have in common: a connection to NATS of their own.
type process struct {
	nc   *nats.Conn
	at   remote.Address
	name string
	log  *slog.Logger

	stderr io.Writer
}

// process connects to NATS and runs until it is interrupted, or until NATS refuses this process for good.
func (s *shell) process(c *cli.Context, user string, run func(ctx context.Context, p *process) error) error {
	level, err := logLevel(c)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level}))
	name := processName(c.String("name"))
	if err := cluster.CheckName("name", name); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if c.IsSet("slots") && c.Int("slots") < 1 {
		return fmt.Errorf("%w: --slots %d: want at least 1", ErrUsage, c.Int("slots"))
	}
	ctx, stop := context.WithCancelCause(c.Context)
	defer stop(nil)
	nc, at, err := connect(c, user, log, nats.ClosedHandler(func(nc *nats.Conn) { stop(fmt.Errorf("NATS has closed the connection: %w", nc.LastError())) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	err = run(ctx, &process{nc: nc, at: at, name: name, log: log, stderr: s.stderr})
	if cause := context.Cause(ctx); err == nil && cause != nil && c.Context.Err() == nil {
		return cause
	}
	return err
}

// nodeView is a node as lists show it.
type nodeView struct {
	Name     string            `json:"name"`
	State    string            `json:"state"` // up, silent (its process says nothing), leaving
	Draining bool              `json:"draining"`
	Slots    int               `json:"slots"`
	Workers  int               `json:"workers"` // that it runs
	Jobs     []string          `json:"jobs"`    // that these are of
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Memory   uint64            `json:"memory_bytes,omitempty"`
	Limits   string            `json:"limits,omitempty"`
	Programs []cluster.Program `json:"programs,omitempty"`
	Since    time.Time         `json:"since"`
}

func listNodes(ctx context.Context, a *ask) error {
	beats, err := a.beats(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	records, err := a.records.List(ctx, cluster.NodePrefix)
	if err != nil {
		return err
	}
	draining, err := a.records.List(ctx, cluster.DrainKey(""))
	if err != nil {
		return err
	}
	views := nodeViews{}
	for _, r := range records {
		n, err := cluster.DecodeNode(r.Value)
		if err != nil {
			a.Log.Warn("record of a node cannot be read", "key", r.Key, "err", err)
			continue
		}
		v := viewOfNode(n, beats[n.Name])
		v.Draining = slices.ContainsFunc(draining, func(d cluster.Record) bool { return d.Key == cluster.DrainKey(n.Name) })
		views = append(views, v)
	}
	return a.Print(views)
}

// viewOfNode puts together what a record says of a node and what it says itself, b, if it does.
func viewOfNode(n *cluster.Node, b *cluster.Beat) nodeView {
	v := nodeView{Name: n.Name, State: "silent", Since: n.Since, Jobs: []string{}}
	if b == nil || b.Session != n.Session {
		return v
	}
	v.State = "up"
	if b.Ending || b.Leaving {
		v.State = "leaving"
	}
	v.Slots, v.Workers, v.Host, v.PID, v.Memory, v.Limits, v.Programs = b.Slots, len(b.Workers), b.Host, b.PID, b.Memory, b.Limits, b.Programs
	for _, w := range b.Workers {
		v.Jobs = append(v.Jobs, w.Job)
	}
	slices.Sort(v.Jobs)
	v.Jobs = slices.Compact(v.Jobs)
	return v
}

// nodeViews is the report of node list.
type nodeViews []nodeView

// WriteJSON implements Report.
func (v nodeViews) WriteJSON(w io.Writer) error { return jsonReport(w, v) }

// WriteText implements Report.
func (v nodeViews) WriteText(w io.Writer) error {
	return textReport(w, func(b *bytes.Buffer) error {
		if len(v) == 0 {
			fmt.Fprintln(b, "no nodes")
			return nil
		}
		return writeTable(b, v,
			column("node", func(n nodeView) string { return n.Name }),
			column("state", func(n nodeView) string {
				if n.Draining {
					return n.State + ", draining"
				}
				return n.State
			}),
			column("workers", func(n nodeView) string { return fmt.Sprintf("%d of %d", n.Workers, n.Slots) }),
			column("host", func(n nodeView) string { return orDash(n.Host) }),
			number("pid", func(n nodeView) uint64 { return uint64(max(n.PID, 0)) }),
			column("memory", func(n nodeView) string { return fmt.Sprintf("%.0f MiB", float64(n.Memory)/(1<<20)) }),
			column("limits", func(n nodeView) string { return orDash(n.Limits) }),
			column("program", func(n nodeView) string { return orDash(versionOf(n.Programs)) }),
			column("since", func(n nodeView) string { return clock(n.Since) }),
			column("jobs", func(n nodeView) string { return strings.Join(n.Jobs, ", ") }),
		)
	})
}

// versionOf is the version of the programs that a node carries: they are of one binary.
func versionOf(programs []cluster.Program) string {
	versions := make([]string, 0, len(programs))
	for _, p := range programs {
		versions = append(versions, p.Version)
	}
	slices.SortFunc(versions, cmp.Compare[string])
	return strings.Join(slices.Compact(versions), ", ")
}

func drainNode(ctx context.Context, a *ask) error {
	name := a.Flags.Args().First()
	if err := a.isNode(ctx, name); err != nil {
		return err
	}
	if err := a.wishFor(ctx, cluster.DrainKey(name)); err != nil {
		return fmt.Errorf("drain node %s: %w", name, err)
	}
	fmt.Fprintf(a.screen, "node %s will be emptied, as far as others have room; see node list\n", name)
	return nil
}

func undrainNode(ctx context.Context, a *ask) error {
	name := a.Flags.Args().First()
	if err := cluster.CheckName("node", name); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	found, err := a.forget(ctx, cluster.DrainKey(name))
	if err != nil {
		return fmt.Errorf("undrain node %s: %w", name, err)
	}
	if !found {
		return fmt.Errorf("undrain node %s: it is not being drained", name)
	}
	return nil
}

// isNode says what is wrong with the name of a node.
func (m *members) isNode(ctx context.Context, name string) error {
	if err := cluster.CheckName("node", name); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	records, err := m.records.List(ctx, cluster.NodeKey(name))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(records, func(r cluster.Record) bool { return r.Key == cluster.NodeKey(name) }) {
		return m.unknown(ctx, "node", name, cluster.NodePrefix)
	}
	return nil
}
