package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cli"
)

// run runs a command line in this process. Tests that run beside others use program instead: the command line library
// keeps its --help flag in a global variable and writes to it whenever it reads a command line.
func run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cli.Main(ctx, append([]string{"afstream"}, args...), &out, &errs, cli.Jobs()...)
	return code, out.String(), errs.String()
}

// program runs a command line in a process of its own.
func program(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, "afstream", args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); c.ProcessState == nil {
		return -1, "", err.Error()
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// heavyHitters runs the job and returns its JSON output.
func heavyHitters(t *testing.T, args ...string) map[string]any {
	t.Helper()
	code, stdout, stderr := run(t.Context(), append([]string{"run", "heavy-hitter", "--output", "json"}, args...)...)
	require.Equal(t, cli.ExitOK, code, stderr)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	return report
}

// TestJSONFields goes through the documented fields one by one: they are what programs rely on.
func TestJSONFields(t *testing.T) {
	r := heavyHitters(t, "--items", "150k", "--keys", "1000", "--workers", "2", "--compute", "1", "--theta", "1000",
		"--l", "100", "--gamma", "200", "--series", "telescoping", "--source-replay=false", "--threshold", "0.02",
		"--fail", "sketch/0@30%", "--fail", "trace/0@60%", "--fail", "sketch/1@99999999", "--verify")
	for field, want := range map[string]any{
		"job": "heavy-hitter", "guarantee": "approximate", "items": 150e3, "theta": 1000.0, "l": 100.0, "gamma": 200.0,
		"workers": 2.0, "compute": 1.0, "series": "telescoping", "source_replay": false, "interrupted": false,
		"skipped_rows": 0.0, "ignored_rows": 0.0, "compensate": false,
		"unreached_failures": []any{"sketch/1@99999999"},
	} {
		require.Equal(t, want, r[field], field)
	}
	require.Positive(t, r["seconds"])
	require.InEpsilon(t, r["items_per_second"], 150e3/r["seconds"].(float64), 1e-9)

	failures := r["failures"].([]any)
	require.Len(t, failures, 2)
	first := failures[0].(map[string]any)
	require.Equal(t, "sketch", first["operator"])
	require.Equal(t, 0.0, first["worker"])
	require.Equal(t, 1.0, first["epoch"])
	require.Equal(t, 250.0, first["divergence_budget"], "half of theta, in two parts")
	for _, field := range []string{"at_item", "recovery_seconds"} {
		require.Positive(t, first[field], field)
	}
	for _, field := range []string{"divergence", "replayed", "lost"} {
		require.GreaterOrEqual(t, first[field], 0.0, field)
	}

	backups := r["backups"].(map[string]any)
	for _, field := range []string{"state_commits", "item_commits", "bytes", "seconds"} {
		require.Positive(t, backups[field], field)
	}

	v := r["verify"].(map[string]any)
	require.Equal(t, 1300.0, v["state_divergence_bound"])
	require.Equal(t, 300.0, v["lost_items_bound"])
	require.Equal(t, 0.0, v["duplicated_items"])
	require.LessOrEqual(t, v["state_divergence"], v["state_divergence_bound"])
	require.LessOrEqual(t, v["lost_items"], v["lost_items_bound"])
	for _, field := range []string{"precision", "recall"} {
		require.Greater(t, v[field], 0.5, field)
		require.LessOrEqual(t, v[field], 1.0, field)
	}
	require.Less(t, v["mean_relative_error"], 0.2)
	require.Equal(t, true, v["kept"])

	result := r["result"].(map[string]any)
	require.Equal(t, 0.02, result["threshold"])
	heavy := result["heavy_hitters"].([]any)
	require.NotEmpty(t, heavy)
	require.Equal(t, "k000000", heavy[0].(map[string]any)["key"])
	require.Greater(t, heavy[0].(map[string]any)["estimate"], 1000.0)
}

// TestJSONWithoutBounds has every figure that could be infinite.
func TestJSONWithoutBounds(t *testing.T) {
	r := heavyHitters(t, "--items", "100k", "--theta", "inf", "--fail", "sketch/0@50%", "--verify")
	require.Nil(t, r["theta"])
	require.Nil(t, r["verify"].(map[string]any)["state_divergence_bound"])
	require.Nil(t, r["failures"].([]any)[0].(map[string]any)["divergence_budget"])
	r = heavyHitters(t, "--items", "100k", "--guarantee", "none", "--fail", "sketch/0@50%", "--verify")
	require.Nil(t, r["verify"].(map[string]any)["lost_items_bound"])
	require.Equal(t, "none", r["guarantee"])
}

// TestSeedsRepeat draws the same failures of the same input twice.
func TestSeedsRepeat(t *testing.T) {
	workers := func(seed string) (names []string) {
		for _, f := range heavyHitters(t, "--items", "200k", "--failures", "3", "--seed", seed, "--verify")["failures"].([]any) {
			f := f.(map[string]any)
			names = append(names, fmt.Sprint(f["operator"], f["worker"]))
		}
		return names
	}
	require.ElementsMatch(t, workers("3"), workers("3"))
}

// TestInterrupt ends a run that would take hours.
func TestInterrupt(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	var since time.Time
	errs := &trigger{mark: "recovered", do: func() { since = time.Now(); cancel() }}
	code := cli.Main(ctx, strings.Fields("afstream run heavy-hitter --items 1e15 --fail sketch/0@100000 --backup-dir "+dir),
		&out, errs, cli.HeavyHitter())
	require.Less(t, time.Since(since), time.Minute, "it would run for hours")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs.String(), "\nafstream: interrupted after ")
	require.Contains(t, out.String(), "k000000")
	require.Contains(t, out.String(), "result so far")
	goleak.VerifyNone(t, before)

	store, err := backup.OpenBadger(dir, backup.BadgerOptions{})
	require.NoError(t, err)
	require.NoError(t, store.Close())
}

// TestLockedBackupDir is another process at work on the same directory.
func TestLockedBackupDir(t *testing.T) {
	dir := t.TempDir()
	store, err := backup.OpenBadger(dir, backup.BadgerOptions{})
	require.NoError(t, err)
	defer store.Close()
	code, stdout, stderr := run(t.Context(), "run", "heavy-hitter", "--backup-dir", dir)
	require.Equal(t, cli.ExitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "choose another --backup-dir")
	require.Equal(t, 1, strings.Count(stderr, "\n"))
}

// trigger does something once what is written to it contains a mark.
type trigger struct {
	text bytes.Buffer
	mark string
	do   func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if w.do != nil && bytes.Contains(p, []byte(w.mark)) {
		w.do()
		w.do = nil
	}
	return w.text.Write(p)
}

func (w *trigger) String() string { return w.text.String() }

// TestFirstSignal ends the job in order.
func TestFirstSignal(t *testing.T) {
	c := exec.Command("afstream", strings.Fields("run heavy-hitter --items 1e15 --output json --fail sketch/0@100000")...)
	var out bytes.Buffer
	c.Stdout = &out
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	readTo(t, errs, "recovered")
	since := time.Now()
	require.NoError(t, c.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(errs)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(), &exit)
	require.Equal(t, cli.ExitFailed, exit.ExitCode(), string(rest))
	require.Less(t, time.Since(since), time.Minute, "it would run for hours")
	var report map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.Equal(t, true, report["interrupted"])
}

// TestSecondSignal ends the process, whatever the job does.
func TestSecondSignal(t *testing.T) {
	c := exec.Command("stubborn", "run", "job")
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := readTo(t, errs, "begun")
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	for lines.Scan() && !strings.Contains(lines.Text(), "asked to end") {
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond) // one signal may arrive before the first is dealt with in full
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = c.Process.Signal(syscall.SIGTERM) // it may have ended just now
		case err := <-ended:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
			return
		}
	}
}

// readTo reads lines up to one that contains a mark.
func readTo(t *testing.T, r io.Reader, mark string) *bufio.Scanner {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.Contains(lines.Text(), mark) {
			return lines
		}
	}
	require.Fail(t, "never written: "+mark)
	return nil
}

// TestOwnJob is what a user's own binary does.
func TestOwnJob(t *testing.T) {
	own := cli.Job{
		Name:  "echo",
		Usage: "say what it was told",
		Flags: []urfave.Flag{&urfave.StringFlag{Name: "say"}},
		Run: func(_ context.Context, e *cli.Env) error {
			e.Log.Info("about to speak")
			if e.Flags.String("say") == "" {
				return fmt.Errorf("%w: nothing to say", cli.ErrUsage)
			}
			return e.Print(text(e.Flags.String("say")))
		},
	}
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), []string{"mine", "run", "echo", "--say", "hi", "--log-level", "info"}, &out, &errs, own)
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "hi\n", out.String())
	require.Contains(t, errs.String(), "about to speak")

	out.Reset()
	require.Equal(t, cli.ExitOK, cli.Main(t.Context(), []string{"mine", "run", "echo", "--say", "hi", "--output", "json"}, &out, &errs, own))
	require.Equal(t, "\"hi\"\n", out.String())
	require.Equal(t, cli.ExitUsage, cli.Main(t.Context(), []string{"mine", "run", "echo"}, &out, &errs, own))
	require.Contains(t, errs.String(), "nothing to say")
}

type text string

func (s text) WriteText(w io.Writer) error { _, err := fmt.Fprintln(w, string(s)); return err }
func (s text) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(string(s)) }

// TestStdoutThatIsGone must not look like success.
func TestStdoutThatIsGone(t *testing.T) {
	var errs bytes.Buffer
	code := cli.Main(t.Context(), []string{"afstream", "run", "heavy-hitter"}, gone{}, &errs, cli.HeavyHitter())
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs.String(), "write report: no one reads this")
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("no one reads this") }

// TestEveryFlagSaysWhatItDoes looks at the help, which is the manual.
func TestEveryFlagSaysWhatItDoes(t *testing.T) {
	shared := strings.Fields("input theta l gamma series allocate source-replay guarantee batch workers compute fail failures seed " +
		"backup-dir backup-sync verify output log-level pin")
	own := map[string]string{
		"distinct":            "format key weight on-bad items keys zipf precision",
		"aggregate":           "format key weight on-bad items keys zipf least show measure norm alpha",
		"grep":                "block find regexp ignore-case show",
		"logistic-regression": "format first on-bad examples bits method rate every consistency staleness max-features max-value",
		"join":                "table flights window slack show",
		"heavy-hitter":        "format key weight alpha on-bad threshold rows width compensate items keys zipf method capacity",
		"histogram":           "format value on-bad items keys zipf layout bins from to accuracy quantiles",
		"sample":              "format key weight on-bad items keys zipf size weighted show",
		"wordcount":           "block boundaries fold top norm split",
	}
	for _, j := range cli.Jobs() {
		_, help, _ := run(t.Context(), "run", j.Name, "--help")
		require.Contains(t, own, j.Name)
		for _, flag := range append(strings.Fields(own[j.Name]), shared...) {
			variable := "[$AFSTREAM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) + "]"
			require.Contains(t, help, variable, j.Name)
		}
		for _, flag := range j.Flags {
			usage := flag.(urfave.DocGenerationFlag).GetUsage()
			require.Greater(t, len(usage), 20, flag.Names()[0])
		}
	}
}
