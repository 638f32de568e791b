package cli

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/internal/cgroup"
)

// limits are what a node process may take of its machine; 0 is no limit.
type limits struct {
	cpus   float64
	memory uint64
}

func limitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "cpus", Category: categoryCluster, EnvVars: env("cpus"), DefaultText: "no limit",
			Usage: "`PROCESSORS` that the node takes at most, such as 1.5; kept by cgroup v2 where the system permits it, else by the number of threads that run at a time",
		},
		&cli.StringFlag{
			Name: "memory", Category: categoryCluster, EnvVars: env("memory"), DefaultText: "no limit",
			Usage: "`BYTES` of memory that the node takes at most, such as 2GiB; kept by cgroup v2 where the system permits it, which kills the process beyond; the collector of garbage works harder from nine tenths on",
		},
	}
}

// readLimits reads limitFlags.
func readLimits(c *cli.Context) (l limits, err error) {
	l.cpus = c.Float64("cpus")
	if !(l.cpus >= 0 && l.cpus <= 1<<20) {
		return l, fmt.Errorf("%w: --cpus %v: want a number of processors above 0, such as 1.5", ErrUsage, l.cpus)
	}
	if text := c.String("memory"); text != "" {
		if l.memory, err = humanize.ParseBytes(text); err != nil || l.memory < 32<<20 || l.memory > math.MaxInt64 {
			return l, fmt.Errorf("%w: --memory %s: want at least 32MiB, such as 512MiB or 2GiB", ErrUsage, text)
		}
	}
	return l, nil
}

// hold keeps the limits for the node name as far as the system permits, and says in words what holds then; empty if nothing was asked
// for. The environment's GOMAXPROCS and GOMEMLIMIT go before them.
func (l limits) hold(name string, log *slog.Logger) string {
	if l == (limits{}) {
		return ""
	}
	if l.cpus > 0 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), max(1, int(math.Ceil(l.cpus)))))
	}
	if l.memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(l.memory / 10 * 9)) // what the runtime does not count needs room, too
	}
	if err := cgroup.Limit("afstream-"+name, l.cpus, l.memory); err != nil {
		log.Warn("the system does not keep --cpus and --memory; the process tries to", "err", err)
		return cgroup.Granted() + ", not what was asked for"
	}
	return cgroup.Granted()
}
