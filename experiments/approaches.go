package experiments

import (
	"context"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// approach is one way to be tolerant of failures, or not to be.
type approach struct {
	guarantee worker.Guarantee
	// replays reads the input again after a failure; otherwise it is read like a pipe.
	replays bool
	name    string // for people
}

// textJob is a job over a text.
type textJob struct {
	name string
	// size is how many bytes of text it gets at the scale of the paper: as many as take more than a second.
	size uint64
	// run runs the job on the text of a file.
	run func(ctx context.Context, path string, e job.Engine) (textRun, error)
	// batches are how many items lie between two backups under mini-batches and under upstream backup.
	batches map[worker.Guarantee]uint64
}

// textRun is what such a job has done.
type textRun struct {
	job.Summary
	answer         Measured // the error of the answer: counts that are off, lines that are missing
	lost, repeated Measured // items
}

// result returns the figures of a run over size bytes, and its errors. The columns are textColumns and textErrors.
func (r *textRun) result(size float64) Result {
	return Result{
		Figures: []float64{
			size / float64(r.Seconds), float64(len(r.Failures)), float64(r.Backups.StateCommits), float64(r.Backups.ItemCommits),
			float64(r.Backups.Bytes), longestRecovery(r.Failures),
		},
		Errors: []Measured{r.answer, r.lost, r.repeated},
	}
}

var (
	byteRateColumn = Column{Name: "bytes_per_second", Unit: "B/s", About: "text read in a second, failures and recoveries included"}
	logColumn      = Column{Name: "item_commits", About: "backups of items"}
	answerColumn   = Column{Name: "answer_error", About: "wordcount: the largest error of a count; grep: lines that were not found"}
	textColumns    = []Column{byteRateColumn, struckColumn, commitsColumn, logColumn, backedUpColumn, recoveryColumn}
	textErrors     = []Column{answerColumn, lostColumn, repeatedColumn}
)

// runGrep looks for a word that few lines have.
func runGrep(ctx context.Context, path string, e job.Engine) (textRun, error) {
	g := job.DefaultGrep()
	g.Engine, g.Input = e, job.Text{Path: path}
	g.Find.Strings = []string{"Crystalline"} // the job keeps what it finds in memory
	r, err := g.Run(ctx)
	if err := unlessBound(err); err != nil {
		return textRun{}, err
	}
	v := r.Verify
	return textRun{
		Summary: r.Summary, answer: Measured{float64(v.Missing), float64(v.LostLinesBound)},
		lost: Measured{float64(v.LostItems), float64(v.LostItemsBound)}, repeated: Measured{float64(v.Repeated), float64(v.RepeatedLinesBound)},
	}, nil
}

// wordCount returns the job that counts words, either where a block of text arrives or as items of their own.
func wordCount(split bool) func(context.Context, string, job.Engine) (textRun, error) {
	return func(ctx context.Context, path string, e job.Engine) (textRun, error) {
		w := job.DefaultWordCount()
		w.Engine, w.Input, w.Split = e, job.Text{Path: path}, split
		r, err := w.Run(ctx)
		if err := unlessBound(err); err != nil {
			return textRun{}, err
		}
		v := r.Verify
		return textRun{
			Summary: r.Summary, answer: Measured{float64(v.StateDivergence), float64(v.StateDivergenceBound)},
			lost:     Measured{float64(v.LostItems), float64(v.LostItemsBound)},
			repeated: Measured{float64(v.DuplicatedItems), float64(v.DuplicatedBound)},
		}, nil
	}
}

// Approaches compares the guarantees that the engine can give, on the same operators.
func Approaches() Experiment {
	return Experiment{
		Name:  "approaches",
		Title: "Approaches to fault tolerance, side by side",
		Question: "What does each guarantee cost on the same job, in the same engine, with Theta = 10,000, L = Gamma = 1,000 and no failures, and " +
			"is it kept through three? Grep finds the lines with a word; wordcount counts words where a block of text " +
			"arrives; wordcount-split sends each word as an item to the worker that counts it, as the source did. The source of the " +
			"text is read like a pipe, and read again after a failure in the cases that say so. Error-free stands for Theta = 0, L = 0, " +
			"Gamma = 1. Mini-batches stop, save the whole state, and go on, after each 65,536 words, or 256 blocks of text; upstream backup keeps " +
			"items with their senders until what came of them is saved, which is done after each 1,000 words, or 16 blocks. After a failure both " +
			"read again from there, and words may be counted, or lines found, twice. Error-free, which waits for a backup with each item, " +
			"gets a twentieth of the text.",
		Source: "The source compared with other systems on 11 machines over 15 GB of text held in memory, and had no version of its own with the " +
			"guarantees of those. So its ratios tell systems apart, and those here guarantees: an engine that was slow for other " +
			"reasons does not show here. The text is that which comes with the program, repeated.",
		Params: []Column{
			{Name: "job", About: "what is computed"}, guaranteeColumn,
			{Name: "replay", About: "whether the input is read again after a failure"}, failuresColumn, {Name: "bytes", Unit: "B", About: "length of the text"},
		},
		Figures: textColumns, Errors: textErrors, Rate: byteRateColumn.Name,
		Cases: approachCases,
		Plots: func(r Results) []Plot {
			r = r.Where("failures", "0")
			rates := Plot{Name: "rate", Title: "Throughput without failures, by guarantee", Y: Axis{Label: "bytes/s", Log: true}}
			for _, a := range approaches() {
				rates.X.Names = append(rates.X.Names, a.name)
			}
			for _, j := range textJobs() {
				of := r.Where("job", j.name)
				l := Line{Name: j.name}
				for i, a := range approaches() {
					l.X, l.Y = append(l.X, float64(i)), append(l.Y, of.as(a).Value(byteRateColumn.Name))
				}
				rates.Lines = append(rates.Lines, l)
			}
			return []Plot{rates}
		},
		Claims: approachClaims,
	}
}

func textJobs() []textJob {
	blocks := map[worker.Guarantee]uint64{worker.MiniBatch: 256, worker.UpstreamBackup: 16}
	words := map[worker.Guarantee]uint64{worker.MiniBatch: 1 << 16, worker.UpstreamBackup: 1000}
	return []textJob{
		{name: "grep", size: 2000 << 20, run: runGrep, batches: blocks},
		{name: "wordcount", size: 400 << 20, run: wordCount(false), batches: blocks},
		{name: "wordcount-split", size: 40 << 20, run: wordCount(true), batches: words},
	}
}

func approaches() []approach {
	return []approach{
		{guarantee: worker.None, name: "none"},
		{guarantee: worker.Approximate, name: "approximate"},
		{guarantee: worker.Approximate, replays: true, name: "approximate, replay"},
		{guarantee: worker.ErrorFree, name: "error-free"},
		{guarantee: worker.ErrorFree, replays: true, name: "error-free, replay"},
		{guarantee: worker.MiniBatch, replays: true, name: "mini-batch"},
		{guarantee: worker.UpstreamBackup, replays: true, name: "upstream backup"},
	}
}

// as keeps the cases of an approach.
func (r Results) as(a approach) Results {
	return r.Where("guarantee", a.guarantee.String()).Where("replay", yesNo(a.replays))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func approachCases(p Plan) []Case {
	var cases []Case
	for _, j := range textJobs() {
		size := p.Scale.Of(j.size)
		for _, a := range approaches() {
			for _, failures := range []int{0, 3} {
				if a.guarantee == worker.None && failures > 0 {
					continue
				}
				// Error-free waits for the disk with each item. It gets less text and is compared by its rate.
				text := size
				if a.guarantee == worker.ErrorFree {
					text /= 20
				}
				params := func(a approach, failures int, text uint64) []string {
					return []string{j.name, a.guarantee.String(), yesNo(a.replays), number(failures), number(text)}
				}
				cases = append(cases, Case{
					Params: params(a, failures, text), Baseline: params(approaches()[0], 0, size),
					Run: func(ctx context.Context, seed uint64) (Result, error) {
						return runApproach(ctx, j, a, failures, text, seed)
					},
				})
			}
		}
	}
	return cases
}

func runApproach(ctx context.Context, j textJob, a approach, failures int, size, seed uint64) (Result, error) {
	e := job.Engine{Guarantee: a.guarantee, PipeSources: !a.replays, Workers: 2, Compute: 1, RandomFaults: failures, Seed: seed, Verify: true}
	e.Params, e.Batch = errorbound.Params{Theta: 10_000, L: 1000, Gamma: 1000}, j.batches[a.guarantee]
	return runText(ctx, j.run, e, size, seed)
}

// runText runs a job on a text of about size bytes.
func runText(ctx context.Context, run func(context.Context, string, job.Engine) (textRun, error), e job.Engine, size, seed uint64) (
	result Result, err error,
) {
	err = withText(size, seed, func(path string) error {
		r, err := run(ctx, path, e)
		result = r.result(float64(size))
		return err
	})
	return result, err
}

func approachClaims(r Results) []Claim {
	r = r.Where("failures", "0")
	ratio := func(job string, g worker.Guarantee, replays bool) float64 {
		return r.Where("job", job).as(approach{guarantee: g, replays: replays}).Value(ratioName)
	}
	rate := func(job string) float64 {
		return r.Where("job", job).as(approach{guarantee: worker.None}).Value(byteRateColumn.Name)
	}
	return []Claim{
		{What: "grep without a guarantee, bytes/s", Source: 3.55e9, Here: rate("grep")},
		{What: "grep, approximate by none", Source: 3.48 / 3.55, Here: ratio("grep", worker.Approximate, false), Unit: "%"},
		{What: "wordcount without a guarantee, bytes/s", Source: 1.92e9, Here: rate("wordcount-split")},
		{What: "wordcount, approximate by none", Source: 1.88 / 1.92, Here: ratio("wordcount-split", worker.Approximate, false), Unit: "%"},
		{What: "wordcount by blocks, approximate by none", Source: math.NaN(), Here: ratio("wordcount", worker.Approximate, false), Unit: "%"},
		{What: "grep, mini-batches by none", Source: 0.358 / 3.55, Here: ratio("grep", worker.MiniBatch, true), Unit: "%"},
		{What: "wordcount, mini-batches by none", Source: 0.380 / 1.92, Here: ratio("wordcount-split", worker.MiniBatch, true), Unit: "%"},
		{What: "grep, upstream backup by none", Source: 0.380 / 3.55, Here: ratio("grep", worker.UpstreamBackup, true), Unit: "%"},
		{What: "wordcount, upstream backup by none", Source: 0.374 / 1.92, Here: ratio("wordcount-split", worker.UpstreamBackup, true), Unit: "%"},
	}
}
