package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/job"
)

// outputFlags are the flags that every job has.
func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Value: "table", Category: categoryOutput, EnvVars: env("output"),
			Usage: "how to write the result to stdout: table for people, json for programs",
		},
		logFlag(),
	}
}

func logFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "log-level", Value: "warn", Category: categoryOutput, EnvVars: env("log-level"),
		Usage: "what to log to stderr: debug, info, warn or error",
	}
}

// Categories of flags, in the order in which help lists them, which is that of the alphabet.
const (
	categoryInput    = "1. Input"
	categoryAnswer   = "2. Answer"
	categoryTolerate = "3. Fault tolerance"
	categoryCluster  = "4. Several machines"
	categoryInject   = "5. Failures and proof"
	categoryOutput   = "6. Output"
)

// env names the environment variable of a flag.
func env(flag string) []string {
	return []string{"AFSTREAM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

// Report is a result in the two forms of --output.
type Report interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// Env is what a job has of the command line.
type Env struct {
	// Flags are the values of the job's flags.
	Flags *cli.Context
	// Log writes to stderr at the level the user chose.
	Log *slog.Logger

	stdout io.Writer
	json   bool
	screen *screen
	runner job.Runner // of what Engine returns; nil for the usual one
}

// Print writes a result to stdout as the user wants it. The progress bar ends.
func (e *Env) Print(r Report) error {
	e.screen.close()
	if e.json {
		return r.WriteJSON(e.stdout)
	}
	return r.WriteText(e.stdout)
}

// present prints the report of a job, if there is one, whatever its error is.
func present[T any, R interface {
	*T
	Report
}](e *Env, report R, err error) error {
	if report == nil {
		return err
	}
	return errors.Join(err, e.Print(report))
}

func newEnv(c *cli.Context, stdout, stderr io.Writer) (*Env, error) {
	e := &Env{Flags: c, stdout: stdout}
	switch output := c.String("output"); output {
	case "table":
	case "json":
		e.json = true
	default:
		return nil, fmt.Errorf("%w: --output %q: want table or json", ErrUsage, output)
	}
	level, err := logLevel(c)
	if err != nil {
		return nil, err
	}
	e.screen = newScreen(stderr)
	e.Log = slog.New(slog.NewTextHandler(e.screen, &slog.HandlerOptions{Level: level}))
	return e, nil
}

// logLevel reads logFlag.
func logLevel(c *cli.Context) (level slog.Level, err error) {
	switch name := c.String("log-level"); name {
	case "debug", "info", "warn", "error":
		if err := level.UnmarshalText([]byte(name)); err != nil {
			return 0, fmt.Errorf("%w: --log-level: %w", ErrUsage, err)
		}
		return level, nil
	default:
		return 0, fmt.Errorf("%w: --log-level %q: want debug, info, warn or error", ErrUsage, name)
	}
}
