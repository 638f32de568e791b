package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/internal/broker"
)

// defaultListen is where the backup server's own NATS server listens.
const defaultListen = "127.0.0.1:4222"

func backupCommand(stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "backup",
		Usage: "keep the backups of jobs that run elsewhere",
		Description: "Serves a directory over NATS until it is interrupted. Jobs use it with run JOB --backup-server URL. They go on when it is\n" +
			"stopped and started again within a minute. What survives what: see --backup-sync.\n" +
			"It is reached at a NATS server of your own (--nats), or at one inside it (--listen), which asks for no password.",
		Flags:           backupFlags(),
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: unexpected argument %q: backup takes flags only, see %s --help", ErrUsage, c.Args().First(), c.Command.HelpName)
			}
			level, err := logLevel(c)
			if err != nil {
				return err
			}
			return serveBackup(c, stderr, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})))
		},
	}
}

func backupFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{
			Name: "dir", Category: categoryTolerate, EnvVars: env("dir"),
			Usage: "`DIRECTORY` for the backups, made if missing; no other process may use it",
		},
		&cli.BoolFlag{
			Name: "backup-sync", Category: categoryTolerate, EnvVars: env("backup-sync"),
			Usage: "wait for the disk with each group of backups, so that they survive a power cut of this machine; without it they survive that this process or the machines of the jobs die",
		},
		&cli.StringFlag{
			Name: "listen", Category: categoryCluster, EnvVars: env("listen"), DefaultText: defaultListen + ", unless there is --nats",
			Usage: "run a NATS server inside this process at `HOST:PORT`, on 127.0.0.1 if the host is left out, on a free port if that is 0",
		},
		&cli.StringFlag{
			Name: "nats", Category: categoryCluster, EnvVars: env("nats"),
			Usage: "use the NATS server or cluster at this `URL`, nats://HOST:PORT, in place of one inside",
		},
		&cli.StringFlag{
			Name: "name", Value: remote.DefaultName, Category: categoryCluster, EnvVars: env("name"),
			Usage: "`NAME` of this backup server in its cluster",
		},
		logFlag(),
	}, accessFlags()...)
}

// serveBackup serves until the context ends. What it opens it closes in the opposite order.
func serveBackup(c *cli.Context, stderr io.Writer, log *slog.Logger) (err error) {
	dir, listen, natsURL := c.String("dir"), c.String("listen"), c.String("nats")
	switch {
	case dir == "":
		return fmt.Errorf("%w: where shall the backups be kept? Give --dir DIRECTORY", ErrUsage)
	case listen != "" && natsURL != "":
		return fmt.Errorf("%w: --listen runs a NATS server and --nats uses another one: leave out one", ErrUsage)
	case listen == "" && natsURL == "":
		listen = defaultListen
	}
	at := address(c, cmp.Or(natsURL, "nats://"+defaultListen), c.String("name"))
	if err := at.Check(); err != nil {
		return err
	}
	lost := make(chan struct{})
	nc, where, closeNATS, err := reach(&at, listen, log, nats.ClosedHandler(func(*nats.Conn) { close(lost) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS connection", "err", err) }))
	if err != nil {
		return err
	}
	defer closeNATS()
	stop, err := keepBackups(nc, dir, c.Bool("backup-sync"), remote.ServerOptions{Cluster: c.String("cluster"), Name: c.String("name"), Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Fprintf(stderr, "backup server %q of cluster %q serves %s at %s\n", c.String("name"), c.String("cluster"), dir, where)
	return untilLost(c.Context, nc, lost)
}

// keepBackups serves a directory over a connection that is used for nothing else, since it must not wait, until stop is called.
func keepBackups(nc *nats.Conn, dir string, sync bool, o remote.ServerOptions) (stop func() error, err error) {
	store, err := backup.OpenBadger(dir, backup.BadgerOptions{Sync: sync, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	server, err := remote.Serve(nc, store, o)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return func() error { return errors.Join(server.Close(), store.Close()) }, nil
}

// warnOpen says what it means that a NATS server inside is reached from elsewhere: it knows no users.
func warnOpen(b *broker.Server, log *slog.Logger) {
	if !b.Local() {
		log.Warn("whoever reaches this NATS server can do anything with its jobs and backups; use --nats and a server with users instead", "url", b.URL())
	}
}

// untilLost waits for the end, or for NATS to refuse this process for good.
func untilLost(ctx context.Context, nc *nats.Conn, lost <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-lost:
		return fmt.Errorf("NATS has closed the connection: %w", nc.LastError())
	}
}

// reach connects to NATS, its own if listen is given, and says where that is.
func reach(at *remote.Address, listen string, log *slog.Logger, options ...nats.Option) (*nats.Conn, string, func(), error) {
	if listen == "" {
		nc, err := at.Connect("afstream backup server", options...)
		if err != nil {
			return nil, "", nil, err
		}
		return nc, nc.ConnectedUrlRedacted(), nc.Close, nil
	}
	b, err := broker.Listen(listen)
	if err != nil {
		return nil, "", nil, err
	}
	warnOpen(b, log)
	nc, err := b.Connect(options...)
	if err != nil {
		b.Close()
		return nil, "", nil, fmt.Errorf("connect to the NATS server inside: %w", err)
	}
	return nc, b.URL(), func() { nc.Close(); b.Close() }, nil
}
