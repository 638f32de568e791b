package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/broker"
	"github.com/afstream/afstream/node"
)

func (s *shell) upCommand() *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "run a whole cluster in this process: NATS server, backup server, controller and node",
		Description: "For a laptop, until it is interrupted; what was submitted goes on when it is started again with the same --dir.\n" +
			"More nodes and controllers may join: afstream node --nats URL. The NATS server inside asks for no password.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "listen", Value: defaultListen, Category: categoryCluster, EnvVars: env("listen"),
				Usage: "`HOST:PORT` of the NATS server, on 127.0.0.1 if the host is left out, on a free port if that is 0",
			},
			&cli.StringFlag{
				Name: "dir", Category: categoryTolerate, EnvVars: env("dir"), DefaultText: "afstream in the user's directory for caches",
				Usage: "`DIRECTORY` for records, backups and results, made if missing; no other process may use it",
			},
			&cli.BoolFlag{
				Name: "backup-sync", Category: categoryTolerate, EnvVars: env("backup-sync"),
				Usage: "wait for the disk with each backup and record, so that they survive a power cut of this machine",
			},
			&cli.StringFlag{
				Name: "cluster", Value: DefaultCluster, Category: categoryCluster, EnvVars: env("cluster"),
				Usage: "`NAME` of the cluster; all subjects begin with afstream.NAME",
			},
			nameFlag("node and controller", "of this machine"), slotsFlag(), logFlag(),
		},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          s.up,
	}
}

// up runs everything until it is interrupted. What it opens it closes in the opposite order.
func (s *shell) up(c *cli.Context) (err error) {
	if c.Args().Present() {
		return fmt.Errorf("%w: unexpected argument %q: up takes flags only, see %s --help", ErrUsage, c.Args().First(), c.Command.HelpName)
	}
	level, err := logLevel(c)
	if err != nil {
		return err
	}
	name, slots := processName(c.String("name")), c.Int("slots")
	if err := errors.Join(cluster.CheckName("name", name), cluster.CheckName("cluster", c.String("cluster"))); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if slots < 1 {
		return fmt.Errorf("%w: --slots %d: want at least 1", ErrUsage, slots)
	}
	dir, err := stateDir(c.String("dir"))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level}))
	b, err := broker.Start(broker.Options{Address: c.String("listen"), Store: filepath.Join(dir, "nats"), Sync: c.Bool("backup-sync")})
	if err != nil {
		return err
	}
	defer b.Close()
	warnOpen(b, log)
	at := remote.Address{URL: b.URL(), Cluster: c.String("cluster")}
	served, err := b.Connect(lasting(log)...)
	if err != nil {
		return fmt.Errorf("connect to the NATS server inside: %w", err)
	}
	defer served.Close()
	unserve, err := keepBackups(served, filepath.Join(dir, "backups"), c.Bool("backup-sync"), remote.ServerOptions{Cluster: at.Cluster, Name: remote.DefaultName, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unserve()) }()
	nc, err := b.Connect(lasting(log)...)
	if err != nil {
		return fmt.Errorf("connect to the NATS server inside: %w", err)
	}
	defer nc.Close()
	p := &process{nc: nc, at: at, log: log}
	fmt.Fprintf(s.stderr, "cluster %q is up at %s, with node %q, and keeps everything in %s\n", at.Cluster, b.URL(), name, dir)
	ctx, stop := context.WithCancel(c.Context)
	defer stop()
	led := make(chan error, 1)
	go func() { // ends with ctx
		defer stop()
		led <- p.controller(ctx, name, 1)
	}()
	err = p.node(ctx, node.Options{Name: name, Slots: slots}, s.jobs) // with nobody left there is nowhere to move
	stop()
	return errors.Join(err, <-led)
}

// lasting are the options of a connection whose messages are worth nothing later.
func lasting(log *slog.Logger) []nats.Option {
	return []nats.Option{nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), natsTrouble(log)}
}

// stateDir is where a cluster in one process keeps everything.
func stateDir(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: where shall everything be kept? Give --dir DIRECTORY: %w", ErrUsage, err)
	}
	return filepath.Join(cache, "afstream"), nil
}
