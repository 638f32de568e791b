package job

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// LogisticRegressionName is the name of the job and of its topology.
const LogisticRegressionName = "logistic-regression"

// ExampleFormat says how an input holds labelled examples.
type ExampleFormat string

const (
	// FormatFlights is CSV or Parquet with the columns of logreg.FlightsHeader; a flight is positive if it is late.
	FormatFlights ExampleFormat = "flights"
	// FormatLibsvm is lines "label index:value ...".
	FormatLibsvm ExampleFormat = "libsvm"
)

// LogisticRegression learns from labelled examples to predict the label of the next, and predicts each before it learns
// from it. Its operators are examples (the source), learn (Workers of them, with a model per partition that learns from
// its own examples and is told what the others have learned), model (adds up what they learned and tells them) and
// weights (takes the result).
//
// Start from DefaultLogisticRegression: the zero value is not valid.
type LogisticRegression struct {
	Engine

	// Path is the file to read, gzipped or not, connector.Stdin, or connector.Builtin and a name.
	Path string
	// Format is what it holds; empty means flights for "builtin:flights" and files that end in .csv, .csv.gz or .parquet,
	// libsvm for all others.
	Format ExampleFormat
	// First is the index that a libsvm file gives to the first feature, 1 or 0.
	First int
	// OnBad says what to do about a line that cannot be used; default connector.FailOnBad.
	OnBad connector.BadRows
	// Examples is how many examples to learn from, the first of the input; 0 all.
	Examples uint64

	// Model says how to learn. The job sets Learners, PathLength and Quality.
	Model logreg.Options
}

// DefaultLogisticRegression returns the job with all defaults: which flights will be late, learned from those that come
// with the program, by AdaGrad in 2^18 weights, under Theta 5, L 1,000 and Gamma 1,000. Theta is a Euclidean distance of
// models.
func DefaultLogisticRegression() LogisticRegression {
	return LogisticRegression{
		Engine: Engine{Params: errorbound.Params{Theta: 5, L: 1_000, Gamma: 1_000}, Workers: 2, Compute: 1},
		Path:   connector.Builtin + "flights",
		First:  1,
		OnBad:  connector.FailOnBad,
		Model:  logreg.Options{Bits: 18, Rate: logreg.DefaultRate, Every: logreg.DefaultEvery},
	}
}

// flightCategories is how many features a flight has.
const flightCategories = 10

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (l *LogisticRegression) validate() error {
	faults := l.Engine.faults()
	if strings.TrimSpace(l.Path) == "" {
		faults = append(faults, errors.New("nothing to read: want the name of a file"))
	}
	if l.Format != "" && l.Format != FormatFlights && l.Format != FormatLibsvm {
		faults = append(faults, fmt.Errorf("unknown format %q: there are %s, %s", l.Format, FormatFlights, FormatLibsvm))
	}
	if l.First != 0 && l.First != 1 {
		faults = append(faults, fmt.Errorf("first index %d: want 0 or 1", l.First))
	}
	faults = append(faults, badRowFaults(l.OnBad)...)
	if err := l.Model.Validate(); err != nil {
		faults = append(faults, err)
	}
	return settingsError(faults)
}

// format is Format, or what it is taken to be.
func (l *LogisticRegression) format() ExampleFormat {
	if l.Format != "" {
		return l.Format
	}
	name := strings.TrimSuffix(l.Path, ".gz")
	if l.Path == connector.Builtin+"flights" || strings.HasSuffix(name, ".csv") || strings.HasSuffix(name, ".parquet") {
		return FormatFlights
	}
	return FormatLibsvm
}

// exampleInput is an opened input of examples.
type exampleInput struct {
	origin
	open, counted stream.NewSource[logreg.Example]
}

func (l *LogisticRegression) openInput() (*exampleInput, error) {
	skip := l.OnBad == connector.SkipBad
	in := &exampleInput{}
	// What makes examples may not be shared, so each source gets its own.
	if l.format() == FormatFlights {
		in.open = openFlights(l.Path, skip, l.Examples, func() (func(*logreg.Flight) (logreg.Example, error), func(logreg.Example)) {
			h := logreg.NewHasher(l.Model.Bits)
			build := func(f *logreg.Flight) (logreg.Example, error) { return h.Flight(f), nil }
			return build, h.Reuse // learners keep nothing of examples
		})
	} else {
		in.open = func(part, parts int) (stream.Source[logreg.Example], error) {
			parser := logreg.Libsvm{First: l.First, Last: l.First + 1<<l.Model.Bits - 1}
			return translation[string, logreg.Example]{name: l.Path, skip: skip, most: l.Examples, over: parser.Reuse, convert: func(line string) (
				logreg.Example, bool, error,
			) {
				return parser.Parse([]byte(line))
			}}.open(connector.Lines(l.Path))(part, parts)
		}
	}
	var err error
	in.origin, err = newOrigin(l.Path, in.open)
	in.counted = count(in.rows, in.open)
	return in, err
}

// learned is where the topology leaves its result.
type learned struct {
	weights connector.Collector[logreg.Weight]

	mu      sync.Mutex
	quality map[int]*logreg.Prequential // of each learner, through its failures
	vault   connector.Vault             // where else it goes at the end, nil if nowhere
}

// noteQuality is the name of the notes that tell how good the predictions of each learner were.
const noteQuality = "learn-quality"

// Keep implements Results.
func (r *learned) Keep(v connector.Vault) {
	r.weights.Keep(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vault = v
}

// Recall implements Results. Of a learner that has failed it finds only what was counted since, as another process had
// the rest.
func (r *learned) Recall(v connector.Vault, sink string) error {
	var notes connector.Collector[logreg.Prequential]
	if err := errors.Join(r.weights.Recall(v, sink), notes.Recall(v, noteQuality)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quality = map[int]*logreg.Prequential{}
	for i, q := range notes.Items() {
		r.quality[i] = &q
	}
	return nil
}

// ended makes a note of what a learner has counted. One that only closes again for another has counted nothing.
func (r *learned) ended(partition int, q *logreg.Prequential) error {
	r.mu.Lock()
	v := r.vault
	r.mu.Unlock()
	if v == nil || q.Quality().Examples == 0 {
		return nil
	}
	return connector.SaveNote(v, noteQuality, partition, *q)
}

// of returns where a learner counts how good its predictions are. One that takes the place of another goes on counting.
func (r *learned) of(partition int) *logreg.Prequential {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quality == nil {
		r.quality = map[int]*logreg.Prequential{}
	}
	q := r.quality[partition]
	if q == nil {
		q = &logreg.Prequential{}
		r.quality[partition] = q
	}
	return q
}

// total adds up the quality of all learners. The job must have ended.
func (r *learned) total() logreg.Quality {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum logreg.Prequential
	for _, q := range r.quality {
		sum.Merge(q)
	}
	return sum.Quality()
}

// options returns how the learners learn. What they count goes to into.
func (l *LogisticRegression) options(into *learned) logreg.Options {
	o := l.Model
	o.Learners, o.PathLength = l.Workers*l.Compute, l.PipeSources
	if o.MaxFeatures == 0 && l.format() == FormatFlights {
		o.MaxFeatures = flightCategories
	}
	if into != nil {
		o.Quality, o.OnEnd = into.of, into.ended
	}
	return o
}

func (l *LogisticRegression) topology(open stream.NewSource[logreg.Example], into *learned) *stream.Topology {
	t := stream.New(LogisticRegressionName)
	examples := stream.From(t, "examples", open)
	weights := logreg.Train(examples, l.options(into), stream.Workers(l.Workers), stream.Compute(l.Compute), stream.Shuffle())
	stream.To(weights, "weights", connector.Collect(&into.weights))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (l LogisticRegression) Run(ctx context.Context) (*LogisticRegressionReport, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	in, err := l.openInput()
	if err != nil {
		return nil, err
	}
	return run(ctx, &l.Engine, program[learned, Model, LogisticRegressionVerification]{
		name: LogisticRegressionName, input: &in.origin,
		build:  func(into *learned) *stream.Topology { return l.topology(in.counted, into) },
		answer: l.answer,
		verify: func(ctx context.Context, got, clean *learned, result *controller.Result) (*LogisticRegressionVerification, uint64, error) {
			return l.verify(ctx, in, got, clean, result)
		},
	})
}

// norm returns the Euclidean length of a model.
func norm(model []logreg.Weight) float64 {
	sum := 0.0
	for _, w := range model {
		sum += w.Value * w.Value
	}
	return math.Sqrt(sum)
}
