package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// answer is what a job found. V is what its verification found.
type answer[V any] interface {
	// write writes the answer for people; v is nil if the job was not verified.
	write(b *bytes.Buffer, v *V) error
}

// verification is what the verification of a job found.
type verification interface {
	// Checks returns each figure that has a bound.
	Checks() []Check
	// figures returns those that have none.
	figures() []figure
}

// program is one run of a job as the code sees it that all jobs share. R is where a topology leaves its result, which
// becomes the answer A. The functions are called in the order of the fields, build again for the run without failures.
type program[R any, A answer[V], V verification] struct {
	name  string
	input *origin
	// prepare may do what has to be done before the job and may change its settings; nil if there is nothing.
	prepare func(ctx context.Context) (*Plan, error)
	build   func(into *R) *stream.Topology
	answer  func(from *R) A
	// verify compares with the run without failures and with what it works out itself from the input, of which it
	// returns the number of items.
	verify func(ctx context.Context, got, clean *R, result *controller.Result) (*V, uint64, error)
}

// ofRows returns the program of a job whose topology leaves its result in a collector of rows.
func ofRows[R any, A answer[V], V verification](
	name string, in *origin, build func(into *connector.Collector[R]) *stream.Topology, answer func(rows []R) A,
	verify func(ctx context.Context, got, clean []R, result *controller.Result) (*V, uint64, error),
) program[connector.Collector[R], A, V] {
	type rows = connector.Collector[R]
	return program[rows, A, V]{
		name: name, input: in,
		build:  build,
		answer: func(from *rows) A { return answer(from.Items()) },
		verify: func(ctx context.Context, got, clean *rows, result *controller.Result) (*V, uint64, error) {
			return verify(ctx, got.Items(), clean.Items(), result)
		},
	}
}

// run runs a job whose settings are valid. See HeavyHitter.Run for what the errors are.
func run[R any, A answer[V], V verification](ctx context.Context, e *Engine, p program[R, A, V]) (*Report[A, V], error) {
	if err := e.suit(p.input); err != nil {
		return nil, err
	}
	var plan *Plan
	var got R
	if p.prepare != nil {
		var err error
		if plan, err = p.prepare(ctx); errors.Is(err, ErrInterrupted) {
			return newReport(e, p, nil, &got, &controller.Result{Interrupted: true}), err
		} else if err != nil {
			return nil, err
		}
	}
	t := p.build(&got)
	results, err := resultsOf(t, &got)
	if err != nil {
		return nil, err
	}
	result, err := e.run(ctx, t, results, p.input.replayable)
	if result == nil || err != nil && !result.Interrupted {
		return nil, err
	}
	report := newReport(e, p, plan, &got, result)
	if result.Interrupted {
		return report, interrupted(err, "after %s items", group(result.Items))
	}
	if !e.Verify {
		return report, nil
	}
	report.Verify, err = verify(ctx, e, p, &got, result)
	if ctx.Err() != nil {
		report.Interrupted, report.Verify = true, nil
		return report, interrupted(nil, "before it was verified")
	}
	if err != nil {
		return nil, err
	}
	report.read(result)
	return report, broken(report.Checks())
}

// verify repeats a job without failures and compares.
func verify[R any, A answer[V], V verification](
	ctx context.Context, e *Engine, p program[R, A, V], got *R, result *controller.Result,
) (*V, error) {
	var clean R
	again, err := e.repeat(ctx, p.build(&clean))
	if err != nil {
		return nil, fmt.Errorf("repeat the job without failures: %w", err)
	}
	v, items, err := p.verify(ctx, got, &clean, result)
	if err != nil {
		return nil, fmt.Errorf("work out the exact result: %w", err)
	}
	if e.Runner != nil && result.Items < items {
		result.Items = items // what it had read last may not have been heard of
	}
	if result.Items != items || again.Items != items {
		return nil, fmt.Errorf("verify: the input changed between the runs: it had %d items, then %d, then %d",
			result.Items, again.Items, items)
	}
	return v, nil
}

// suit makes e suit an input: one that can be read only once is read like a pipe, and cannot be verified.
func (e *Engine) suit(in *origin) error {
	if in.replayable {
		return nil
	}
	e.PipeSources = true
	if e.Verify {
		return fmt.Errorf("%w: verify has to read the input again, and %s can be read only once: write it to a file first",
			ErrSettings, in.name)
	}
	return settingsError(e.faults())
}

// interrupted makes the error of an interrupted job. Why it did not finish what it had read, if so, is err.
func interrupted(err error, format string, args ...any) error {
	when := fmt.Errorf("%w "+format, append([]any{ErrInterrupted}, args...)...)
	if err == nil {
		return when
	}
	return errors.Join(when, err)
}
