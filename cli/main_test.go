package cli_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/cli"
)

// TestMain makes the program afstream, which is this test binary under another name, and looks for leaks.
func TestMain(m *testing.M) {
	program := func(jobs ...cli.Job) func() {
		return func() { os.Exit(cli.Main(context.Background(), os.Args, os.Stdout, os.Stderr, jobs...)) }
	}
	testscript.Main(leakChecked{m}, map[string]func(){"afstream": program(cli.Jobs()...), "stubborn": program(stubborn)})
}

// stubborn is a job that does not end when it is asked to.
var stubborn = cli.Job{Name: "job", Usage: "run for ever", Run: func(ctx context.Context, e *cli.Env) error {
	e.Log.Warn("begun")
	<-ctx.Done()
	e.Log.Warn("asked to end")
	select {}
}}

type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
