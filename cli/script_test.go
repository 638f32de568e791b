package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/internal/thorough"
)

// update rewrites the golden parts of scripts, to be reviewed as a diff: go test ./cli -run Scripts -update
var update = flag.Bool("update", false, "rewrite golden parts of scripts")

func TestScripts(t *testing.T) {
	t.Parallel()
	inputs := t.TempDir() // what comes with the program, as files to cut off
	for name, variable := range map[string]string{"cip.pcap": "TRACE", "flights": "FLIGHTS", "opticks": "OPTICKS"} {
		file, ok := data.Lookup(name)
		require.True(t, ok)
		require.NoError(t, os.WriteFile(filepath.Join(inputs, variable), []byte(file.Content), 0o600))
	}
	testscript.Run(t, testscript.Params{
		Setup: func(e *testscript.Env) error {
			e.Setenv("TRACE", filepath.Join(inputs, "TRACE"))
			e.Setenv("FLIGHTS", filepath.Join(inputs, "FLIGHTS"))
			e.Setenv("OPTICKS", filepath.Join(inputs, "OPTICKS"))
			return nil
		},
		Dir: "testdata/script",
		Condition: func(name string) (bool, error) {
			switch name {
			case "root": // who can read everything
				return os.Geteuid() == 0, nil
			case "thorough":
				return thorough.Tests, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "refuses": refuses},
	})
}

// exits runs a command that has to end with the given code: exits CODE PROGRAM ARGS... Whatever goes wrong, the user must
// get one line on stderr that says so, and no stack. A command line that cannot work must leave stdout alone.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	checkEnd(ts, want, code, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
}

// turn is held by the script that runs a command line in this process; see run.
var turn sync.Mutex

// refuses runs a command line that cannot work: refuses PROGRAM ARGS... It is as exits 2, but in this process, which saves
// starting one for each of them; so it knows nothing of the directory, the environment and the stdin of the script.
func refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: refuses PROGRAM ARGS...")
	}
	turn.Lock()
	defer turn.Unlock()
	var stdout, stderr bytes.Buffer
	code := cli.Main(context.Background(), args, io.MultiWriter(&stdout, ts.Stdout()), io.MultiWriter(&stderr, ts.Stderr()), cli.Jobs()...)
	checkEnd(ts, cli.ExitUsage, code, stdout.String(), stderr.String())
}

func checkEnd(ts *testscript.TestScript, want, code int, stdout, stderr string) {
	if code != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", code, want, stdout, stderr)
	}
	if strings.Contains(stderr, "goroutine ") || strings.Contains(stdout, "NaN") {
		ts.Fatalf("a stack or NaN in the output:\n%s%s", stdout, stderr)
	}
	if reports := strings.Count("\n"+stderr, "\nafstream: "); (want == 0) != (reports == 0) || reports > 1 {
		ts.Fatalf("%d errors reported:\n%s", reports, stderr)
	}
	if want == cli.ExitUsage && stdout != "" {
		ts.Fatalf("a result in spite of a usage error:\n%s", stdout)
	}
}
