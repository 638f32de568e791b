package job

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// AggregateName is the name of the job and of its topology.
const AggregateName = "aggregate"

// Aggregate counts the items of each key and keeps the sum, the mean, the least and the largest of their weights. Its
// operators are items (the source), aggregate (Workers of them, each for its part of the keys) and table (takes the
// result).
//
// Start from DefaultAggregate: the zero value is not valid.
type Aggregate struct {
	Engine
	KeyedItems

	// Measure says what Theta bounds: ByCount how many items are missing from the aggregates of a key, BySum by how much
	// the sum of a key is off.
	Measure aggregate.Measure
	// Norm is errorbound.Max, where Theta holds for each key, or errorbound.L1, for all keys together.
	Norm errorbound.Norm
	// Alpha is the most that one item weighs, which BySum needs to know to be fast; an item above it then fails the job. 0
	// means to find out, as for HeavyHitter.
	Alpha float64
	// Least leaves out items that weigh less; 0 leaves out none.
	Least float64
	// Show is how many keys the report has, those with the most items; 0 all.
	Show int
}

// DefaultAggregate returns the job with all defaults: the distances of the flights that come with the program, by their
// origin, under Theta 100 items, L 100 and Gamma 100, the 10 busiest airports reported.
func DefaultAggregate() Aggregate {
	a := Aggregate{
		Engine:     Engine{Params: errorbound.Params{Theta: 100, L: 100, Gamma: 100}, Workers: 2, Compute: 1},
		KeyedItems: defaultItems(),
		Show:       10,
	}
	a.Input = connector.KeyedOptions{Path: connector.Builtin + "flights", Key: "origin", Weight: "distance"}
	return a
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (a *Aggregate) validate() error {
	faults := append(a.Engine.faults(), a.inputFaults()...)
	if err := a.options(a.Alpha).Validate(); err != nil {
		faults = append(faults, err)
	}
	if math.IsNaN(a.Least) || a.Least < 0 || math.IsInf(a.Least, 1) {
		faults = append(faults, fmt.Errorf("least weight %v: want a number of at least 0", a.Least))
	}
	if a.Show < 0 {
		faults = append(faults, fmt.Errorf("%d keys to show: want 0 for all or a number of keys", a.Show))
	}
	return settingsError(faults)
}

func (a *Aggregate) options(alpha float64) aggregate.Options[connector.Keyed] {
	o := aggregate.Options[connector.Keyed]{
		Key:     func(item *connector.Keyed) connector.Key { return item.Key },
		Hash:    func(item *connector.Keyed) uint64 { return item.Hash },
		Value:   func(item *connector.Keyed) float64 { return item.Weight },
		Measure: a.Measure, Norm: a.Norm, Combine: errorbound.Disjoint, Alpha: alpha,
	}
	if a.Measure == aggregate.ByCount {
		o.Alpha = 0 // values have no limit then
	}
	if least := a.Least; least > 0 {
		o.Keep = func(item *connector.Keyed) bool { return item.Weight >= least }
	}
	return o
}

func (a *Aggregate) topology(open stream.NewSource[connector.Keyed], alpha float64, rows *connector.Collector[aggregate.Row]) *stream.Topology {
	o := a.options(alpha)
	t := stream.New(AggregateName)
	byKey := stream.HashUint64(func(item connector.Keyed) uint64 { return item.Hash })
	aggregates := stream.Then(stream.From(t, "items", open), "aggregate",
		func() *aggregate.Aggregate[connector.Keyed] { return aggregate.New(o) },
		byKey, stream.Workers(a.Workers), stream.Compute(a.Compute), stream.EmitOnClose())
	stream.To(aggregates, "table", connector.Collect(rows))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (a Aggregate) Run(ctx context.Context) (*AggregateReport, error) {
	if err := a.validate(); err != nil {
		return nil, err
	}
	in, err := a.openInput()
	if err != nil {
		return nil, err
	}
	if a.Alpha > 0 {
		in.alpha = a.Alpha
	}
	report, err := run(ctx, &a.Engine, ofRows(AggregateName, &in.origin,
		func(rows *connector.Collector[aggregate.Row]) *stream.Topology {
			return a.topology(in.counted, in.alpha, rows)
		}, a.answer,
		func(ctx context.Context, got, clean []aggregate.Row, result *controller.Result) (*AggregateVerification, uint64, error) {
			return a.verify(ctx, in, got, clean, result)
		}))
	if errors.Is(err, aggregate.ErrValue) {
		err = fmt.Errorf("%w: alpha is the most that one item may weigh: give a larger one", err)
	}
	return report, err
}
