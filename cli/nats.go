package cli

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup/remote"
)

// DefaultCluster is the cluster of who names none.
const DefaultCluster = "afstream"

// accessFlags are what it takes to reach NATS, and the cluster there.
func accessFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "cluster", Value: DefaultCluster, Category: categoryCluster, EnvVars: env("cluster"),
			Usage: "`NAME` of the cluster; all subjects begin with afstream.NAME",
		},
		&cli.StringFlag{
			Name: "nats-creds", Category: categoryCluster, EnvVars: env("nats-creds"),
			Usage: "`FILE` with the credentials of a NATS user",
		},
		&cli.StringFlag{
			Name: "nats-ca", Category: categoryCluster, EnvVars: env("nats-ca"),
			Usage: "`FILE` with the authorities to trust when NATS is reached by TLS (default: those of the system)",
		},
		&cli.StringFlag{
			Name: "nats-cert", Category: categoryCluster, EnvVars: env("nats-cert"),
			Usage: "`FILE` with the certificate to show to NATS",
		},
		&cli.StringFlag{
			Name: "nats-key", Category: categoryCluster, EnvVars: env("nats-key"),
			Usage: "`FILE` with the key of --nats-cert",
		},
	}
}

// serverFlags say which backup server keeps the backups of a job.
func serverFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{
			Name: "backup-server", Category: categoryCluster, EnvVars: env("backup-server"),
			Usage: "keep the backups with the backup server that is reached at this `URL`, nats://HOST:PORT, so that they survive this machine; see afstream backup --help. Of each job one run at a time: a newer one stops the older",
		},
		&cli.StringFlag{
			Name: "backup-name", Value: remote.DefaultName, Category: categoryCluster, EnvVars: env("backup-name"),
			Usage: "`NAME` of the backup server in its cluster",
		},
	}, accessFlags()...)
}

// backupServer reads serverFlags.
func (e *Env) backupServer() (remote.Address, error) {
	c := e.Flags
	if c.String("backup-server") != "" {
		return address(c, c.String("backup-server"), c.String("backup-name")), nil
	}
	for _, name := range []string{"backup-server", "backup-name", "cluster", "nats-creds", "nats-ca", "nats-cert", "nats-key"} {
		// What the environment says may be meant for other commands.
		if c.IsSet(name) && os.Getenv(env(name)[0]) == "" {
			return remote.Address{}, fmt.Errorf("%w: --%s is for a backup server: say which, --backup-server nats://HOST:PORT", ErrUsage, name)
		}
	}
	return remote.Address{}, nil
}

// address reads accessFlags.
func address(c *cli.Context, url, server string) remote.Address {
	return remote.Address{
		URL: url, Server: server, Cluster: c.String("cluster"),
		Credentials: c.String("nats-creds"), CA: c.String("nats-ca"), Certificate: c.String("nats-cert"), Key: c.String("nats-key"),
	}
}
