package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/overnats"
)

// defaultNATS is where NATS is looked for.
const defaultNATS = "nats://" + defaultListen

// shell is what the commands of a cluster have in common.
type shell struct {
	stdout, stderr io.Writer
	jobs           []Job
	dial           func(c *cli.Context, log *slog.Logger) (*members, error)
}

// members is what a command has of a cluster.
type members struct {
	name     string
	records  cluster.Records
	messages cluster.Messages
	logs     cluster.Logs
	// openStore opens the store of a backup server, which may take until ctx ends.
	openStore func(ctx context.Context, server string) (backup.Store, error)
	close     func()
}

func (m *members) subjects() cluster.Subjects { return cluster.Subjects{Cluster: m.name} }

// natsFlag says where the cluster is.
func natsFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "nats", Value: defaultNATS, Category: categoryCluster, EnvVars: env("nats"),
		Usage: "`URL` of the NATS server or cluster where the cluster meets, nats://HOST:PORT; it must have JetStream",
	}
}

// clusterFlags are what it takes to reach a cluster.
func clusterFlags() []cli.Flag { return append([]cli.Flag{natsFlag()}, accessFlags()...) }

// askTime is how long a command waits for the cluster to answer.
const askTime = 10 * time.Second

// dialCluster reaches the cluster that the flags name.
func dialCluster(c *cli.Context, log *slog.Logger) (*members, error) {
	nc, at, err := connect(c, "afstream "+c.Command.Name, log)
	if err != nil {
		return nil, err
	}
	m, err := join(c.Context, nc, at, 0)
	if err != nil {
		nc.Close()
		return nil, err
	}
	m.close = nc.Close
	return m, nil
}

// connect connects to NATS as the flags say.
func connect(c *cli.Context, user string, log *slog.Logger, more ...nats.Option) (*nats.Conn, remote.Address, error) {
	at := address(c, c.String("nats"), "")
	nc, err := at.Connect(user, append([]nats.Option{natsTrouble(log)}, more...)...)
	return nc, at, err
}

// natsTrouble logs what NATS reports apart from calls.
func natsTrouble(log *slog.Logger) nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS connection", "err", err) })
}

// join takes part in the cluster at nc.
func join(ctx context.Context, nc *nats.Conn, at remote.Address, replicas int) (*members, error) {
	f, err := overnats.Open(ctx, nc, at.Cluster, replicas)
	if err != nil {
		return nil, err
	}
	return &members{
		name: at.Cluster, records: f, messages: f, logs: f,
		openStore: func(ctx context.Context, server string) (backup.Store, error) {
			client, err := remote.Open(ctx, nc, remote.ClientOptions{Cluster: at.Cluster, Server: server})
			if err != nil {
				return nil, err // and no nil client, which as a store is not nil
			}
			return client, nil
		},
		close: func() {},
	}, nil
}

// asked runs a command that asks a cluster something, and prints what it finds.
type asked struct {
	name, usage, args, description string
	flags                          []cli.Flag
	most                           int // arguments
	run                            func(ctx context.Context, a *ask) error
}

// ask is one call of such a command.
type ask struct {
	*members
	*Env
	shell *shell
}

func (s *shell) command(a asked) *cli.Command {
	return &cli.Command{
		Name: a.name, Usage: a.usage, ArgsUsage: a.args, Description: a.description,
		Flags: slices.Concat(a.flags, clusterFlags(), outputFlags()), HideHelpCommand: true, OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if n := c.NArg(); n != a.most {
				return argumentError(c, a.args, a.most)
			}
			env, err := newEnv(c, s.stdout, s.stderr)
			if err != nil {
				return err
			}
			defer env.screen.close()
			m, err := s.dial(c, env.Log)
			if err != nil {
				return err
			}
			defer m.close()
			return a.run(c.Context, &ask{members: m, Env: env, shell: s})
		},
	}
}

// argumentError says which arguments a command wants: flags come before them.
func argumentError(c *cli.Context, args string, most int) error {
	if c.NArg() < most {
		return fmt.Errorf("%w: %s which one? Give %s, see %s --help", ErrUsage, c.Command.Name, args, c.Command.HelpName)
	}
	want := "no arguments"
	if most > 0 {
		want = args + " alone, and flags before it"
	}
	return fmt.Errorf("%w: unexpected argument %q: %s takes %s, see %s --help", ErrUsage, c.Args().Get(most), c.Command.Name, want, c.Command.HelpName)
}

// lookFor is how long beats are gathered to see what goes on.
const lookFor = time.Second

// beats listens to nodes for a moment, and returns the last of each.
func (m *members) beats(ctx context.Context) (map[string]*cluster.Beat, error) {
	var mu sync.Mutex
	last := map[string]*cluster.Beat{}
	stop, err := m.messages.Subscribe(m.subjects().Beat("*"), func(_ string, message []byte) {
		b, err := cluster.DecodeBeat(message)
		if err != nil {
			return // a node of another build says more than is understood here
		}
		mu.Lock()
		defer mu.Unlock()
		if old := last[b.Node]; old == nil || old.Session != b.Session || old.Number < b.Number {
			last[b.Node] = b
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to nodes: %w", err)
	}
	wait := time.NewTimer(lookFor)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	stop()
	mu.Lock() // a message may still be delivered
	defer mu.Unlock()
	found := last
	last = map[string]*cluster.Beat{}
	return found, ctx.Err()
}

// find returns a job's record. The error names one that may have been meant.
func (m *members) find(ctx context.Context, id string) (*cluster.Job, uint64, error) {
	if err := cluster.CheckName("job", id); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := m.records.Get(ctx, cluster.JobKey(id))
	if errors.Is(err, cluster.ErrNoRecord) {
		return nil, 0, m.unknown(ctx, "job", id, cluster.JobPrefix)
	}
	if err != nil {
		return nil, 0, err
	}
	j, err := cluster.DecodeJob(r.Value)
	return j, r.Revision, err
}

// unknown is the error for a name that no record has.
func (m *members) unknown(ctx context.Context, kind, name, prefix string) error {
	hint := fmt.Sprintf("see %s list", kind)
	if records, err := m.records.List(ctx, prefix); err == nil {
		var names []string
		for _, r := range records {
			names = append(names, r.Key[len(prefix):])
		}
		if s := nearest(name, names); s != "" {
			hint = fmt.Sprintf("did you mean %q?", s)
		}
	}
	return fmt.Errorf("cluster %q has no %s %q: %s", m.name, kind, name, hint)
}

// processName is what a process is called that has no name: after its machine.
func processName(given string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	name := []byte(host)
	for i, b := range name {
		if cluster.CheckName("node", string(b)) != nil {
			name[i] = '-'
		}
	}
	return string(name[:min(len(name), 64)])
}
