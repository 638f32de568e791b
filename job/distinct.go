package job

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/algorithms/distinct"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// DistinctName is the name of the job and of its topology.
const DistinctName = "distinct"

// Distinct estimates how many different keys there are, with HyperLogLog. Its operators are items (the source), distinct
// (Workers of them, each with a sketch), merge (makes one of them) and estimate (takes the result). Theta is a number of
// registers: the sketch has 2^Precision of them.
//
// Start from DefaultDistinct: the zero value is not valid.
type Distinct struct {
	Engine
	KeyedItems

	// Precision is the logarithm of the number of registers, distinct.MinPrecision to distinct.MaxPrecision. The standard
	// error of the estimate is 1.04/sqrt(2^Precision), 0.8% for the default of 14.
	Precision int
}

// DefaultDistinct returns the job with all defaults: the pairs of addresses in the packet trace that comes with the
// program, under Theta 100, L 100 and Gamma 100.
func DefaultDistinct() Distinct {
	d := Distinct{
		Engine:     Engine{Params: errorbound.Params{Theta: 100, L: 100, Gamma: 100}, Workers: 2, Compute: 1},
		KeyedItems: defaultItems(),
		Precision:  14,
	}
	d.Input.Key = "flow"
	return d
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (d *Distinct) validate() error {
	faults := append(d.Engine.faults(), d.inputFaults()...)
	if d.Precision < distinct.MinPrecision || d.Precision > distinct.MaxPrecision {
		faults = append(faults, fmt.Errorf("precision %d: want %d to %d", d.Precision, distinct.MinPrecision, distinct.MaxPrecision))
	}
	return settingsError(faults)
}

func (d *Distinct) topology(open stream.NewSource[connector.Keyed], sketches *connector.Collector[distinct.Sketch]) *stream.Topology {
	t := stream.New(DistinctName)
	parts := stream.Then(stream.From(t, "items", open), "distinct", func() *distinct.Count { return distinct.New(d.Precision) },
		stream.Shuffle(), stream.Workers(d.Workers), stream.Compute(d.Compute), stream.EmitOnClose())
	whole := stream.Then(parts, "merge", func() *distinct.Merge { return distinct.NewMerge(d.Precision) }, stream.EmitOnClose())
	stream.To(whole, "estimate", connector.Collect(sketches))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (d Distinct) Run(ctx context.Context) (*DistinctReport, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	in, err := d.openInput()
	if err != nil {
		return nil, err
	}
	return run(ctx, &d.Engine, ofRows(DistinctName, &in.origin,
		func(sketches *connector.Collector[distinct.Sketch]) *stream.Topology {
			return d.topology(in.counted, sketches)
		}, d.answer,
		func(ctx context.Context, got, clean []distinct.Sketch, result *controller.Result) (*DistinctVerification, uint64, error) {
			return d.verify(ctx, in, got, clean, result)
		}))
}
