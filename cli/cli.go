package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/experiments"
	"github.com/afstream/afstream/internal/broker"
	"github.com/afstream/afstream/job"
)

// Exit codes of Main.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ErrUsage is wrapped by errors about the command line. A Job returns it, or job.ErrSettings, for flags that cannot work.
var ErrUsage = errors.New("usage")

// Job is a command below run.
type Job struct {
	// Name is what the command is called.
	Name string
	// Usage is one line for the list of commands, Description what its help begins with.
	Usage, Description string
	// Flags are its own; OutputFlags are added.
	Flags []cli.Flag
	// Run does the job and gives its result to env.Print. ctx ends with the first SIGINT or SIGTERM.
	Run func(ctx context.Context, env *Env) error
}

// Main runs the command line args, the program's name first, and returns the exit code. The first SIGINT or SIGTERM
// ends the job in order, the second one the process.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, jobs ...Job) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal does what it does by default
	app := newApp(programName(args), stdout, stderr, jobs)
	err := app.RunContext(ctx, args)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %s\n", app.Name, message(err))
	if errors.Is(err, ErrUsage) || errors.Is(err, job.ErrSettings) || errors.Is(err, broker.ErrAddress) || errors.Is(err, remote.ErrAddress) {
		return ExitUsage
	}
	return ExitFailed
}

// programName is what the user called, for messages.
func programName(args []string) string {
	if len(args) == 0 {
		return "afstream"
	}
	return strings.TrimSuffix(filepath.Base(args[0]), ".exe")
}

func newApp(name string, stdout, stderr io.Writer, jobs []Job) *cli.App {
	s := &shell{stdout: stdout, stderr: stderr, jobs: jobs, dial: dialCluster}
	run := &cli.Command{
		Name:         "run",
		Usage:        "run a job and print its result",
		ArgsUsage:    "JOB",
		OnUsageError: usageError,
		Action:       unknownCommand,
	}
	for _, j := range jobs {
		run.Subcommands = append(run.Subcommands, j.command(stdout, stderr))
	}
	return &cli.App{
		Name:  name,
		Usage: "stream processing whose errors after failures are bounded",
		Commands: []*cli.Command{
			run, planCommand(stdout, stderr), experimentCommand(stdout, stderr, experiments.All()),
			s.upCommand(), s.jobCommand(), s.nodeCommand(), s.controllerCommand(), backupCommand(stderr), versionCommand(),
		},
		Writer:    stdout,
		ErrWriter: stderr,
		Suggest:   true,
		// What to look for may hold commas. Those of --fail are seen to by Engine.
		DisableSliceFlagSeparator: true,
		OnUsageError:              usageError,
		Flags:                     []cli.Flag{versionFlag()},
		Action: func(c *cli.Context) error {
			if c.Bool("version") && !c.Args().Present() {
				return printVersion(c)
			}
			return unknownCommand(c)
		},
		HideVersion:    true,                         // that of the library
		ExitErrHandler: func(*cli.Context, error) {}, // Main reports errors
	}
}

func (j *Job) command(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:            j.Name,
		Usage:           j.Usage,
		Description:     j.Description,
		Flags:           append(j.Flags[:len(j.Flags):len(j.Flags)], outputFlags()...),
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: unexpected argument %q: %s takes flags only, see %s --help",
					ErrUsage, c.Args().First(), j.Name, c.Command.HelpName)
			}
			env, err := newEnv(c, stdout, stderr)
			if err != nil {
				return err
			}
			defer env.screen.close()
			return j.Run(c.Context, env)
		},
	}
}

// message is an error as one line, without the words that only serve to tell errors apart.
func message(err error) string {
	text := err.Error()
	for _, marker := range []error{ErrUsage, job.ErrSettings, errorbound.ErrPlan} {
		text = strings.TrimPrefix(text, marker.Error()+": ")
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}
