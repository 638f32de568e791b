package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/afstream/afstream/algorithms/reservoir"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// SampleName is the name of the job and of its topology.
const SampleName = "sample"

// Sample draws a random sample of the items. Its operators are items (the source), sample (Workers of them, each with a
// sample of its part), merge (makes one of them) and table (takes the result). Engine.Seed selects the sample.
//
// Start from DefaultSample: the zero value is not valid.
type Sample struct {
	Engine
	KeyedItems

	// Size is how many items are drawn, 1 to reservoir.MaxSize; all if there are fewer. What is estimated from a sample
	// has an error in proportion to 1/sqrt(Size). Theta is a number of its entries.
	Size int
	// Weighted draws items in proportion to their weights, one after another without replacement, instead of all alike.
	// Items of weight 0 are then never drawn.
	Weighted bool
	// Show is how many of the entries the report has, which are a sample of that size themselves; 0 all.
	Show int
}

// DefaultSample returns the job with all defaults: 1,000 of the packets that come with the program, each a flow with its
// bytes, under Theta 100, L 100 and Gamma 100, 10 of them reported.
func DefaultSample() Sample {
	s := Sample{
		Engine:     Engine{Params: errorbound.Params{Theta: 100, L: 100, Gamma: 100}, Workers: 2, Compute: 1},
		KeyedItems: defaultItems(),
		Size:       1000,
		Show:       10,
	}
	s.Input.Key, s.Input.Weight = "flow", "bytes"
	return s
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (s *Sample) validate() error {
	faults := append(s.Engine.faults(), s.inputFaults()...)
	if s.Size < 1 || s.Size > reservoir.MaxSize {
		faults = append(faults, fmt.Errorf("sample of %d items: want 1 to %d", s.Size, reservoir.MaxSize))
	}
	if s.Show < 0 {
		faults = append(faults, fmt.Errorf("%d entries to show: want 0 for all or a number of entries", s.Show))
	}
	return settingsError(faults)
}

func (s *Sample) options() reservoir.Options[connector.Keyed] {
	o := reservoir.Options[connector.Keyed]{Size: s.Size, Seed: s.Seed}
	if s.Weighted {
		o.Weight = func(item *connector.Keyed) float64 { return item.Weight }
	}
	return o
}

// drawnItem is an entry of the sample of the job.
type drawnItem = reservoir.Entry[connector.Keyed]

func (s *Sample) topology(open stream.NewSource[connector.Keyed], entries *connector.Collector[drawnItem]) *stream.Topology {
	o := s.options()
	t := stream.New(SampleName)
	parts := stream.Then(stream.From(t, "items", open), "sample",
		func() *reservoir.Sample[connector.Keyed] { return reservoir.NewSample(o) },
		stream.Shuffle(), stream.Workers(s.Workers), stream.Compute(s.Compute), stream.EmitOnClose())
	whole := stream.Then(parts, "merge", func() *reservoir.Merge[connector.Keyed] { return reservoir.NewMerge(o) }, stream.EmitOnClose())
	stream.To(whole, "table", connector.Collect(entries))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (s Sample) Run(ctx context.Context) (*SampleReport, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	in, err := s.openInput()
	if err != nil {
		return nil, err
	}
	report, err := run(ctx, &s.Engine, ofRows(SampleName, &in.origin,
		func(entries *connector.Collector[drawnItem]) *stream.Topology {
			return s.topology(in.counted, entries)
		}, s.answer,
		func(ctx context.Context, got, clean []drawnItem, result *controller.Result) (*SampleVerification, uint64, error) {
			return s.verify(ctx, in, got, clean, result)
		}))
	if errors.Is(err, reservoir.ErrWeight) {
		err = fmt.Errorf("%w: the weights of all items together must be finite", err)
	}
	return report, err
}
