package node

import (
	"context"
	"encoding/binary"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// numbers is a source of the numbers 0 to n-1, split over its partitions in turns. It waits at number stop until gate opens.
type numbers struct {
	n, parts, part, at, stop uint64
	gate                     <-chan struct{}
	drip                     time.Duration // between two reads of few numbers
	closed                   chan struct{}
}

func (s *numbers) Read(dst []uint64) (int, error) {
	if s.drip > 0 {
		time.Sleep(s.drip)
		dst = dst[:min(len(dst), 50)]
	}
	for i := range dst {
		v := s.at*s.parts + s.part
		if v >= s.stop && i > 0 {
			return i, nil
		}
		if v >= s.stop {
			select {
			case <-s.gate:
			case <-s.closed:
				return 0, io.ErrClosedPipe
			}
		}
		if v >= s.n {
			return i, io.EOF
		}
		dst[i] = v
		s.at++
	}
	return len(dst), nil
}

func (s *numbers) Close() error                 { close(s.closed); return nil }
func (s *numbers) Position() stream.Position    { return stream.Position{Item: s.at} }
func (s *numbers) Seek(p stream.Position) error { s.at = p.Item; return nil }

// pipe is a source that cannot go back.
type pipeSource struct{ s *numbers }

func (p pipeSource) Read(dst []uint64) (int, error) { return p.s.Read(dst) }
func (p pipeSource) Close() error                   { return p.s.Close() }

// keyed is a count of a key.
type keyed struct{ Key, Count uint64 }

const keys = 64

// tally counts numbers by their remainder, and panics at one.
type tally struct {
	counts  map[uint64]uint64
	since   float64
	panicAt uint64
	panics  *atomic.Int64 // how often still
}

func (s *tally) Process(in uint64, _ *stream.Emitter[keyed]) error {
	if in == s.panicAt && s.panics != nil && s.panics.Add(-1) >= 0 {
		panic("I do not like this number\nat all")
	}
	s.counts[in%keys]++
	s.since++
	return nil
}

func (s *tally) CloseWindow(_ stream.Window, out *stream.Emitter[keyed]) error {
	for k := range uint64(keys) {
		if n := s.counts[k]; n > 0 {
			out.Emit(keyed{k, n})
		}
	}
	clear(s.counts)
	return nil
}

func (s *tally) StateDivergence() float64 { return s.since }

func (s *tally) BackupState(w *stream.StateWriter) error {
	for k, n := range s.counts {
		w.PutUint64(k, n)
	}
	s.since = 0
	return nil
}

func (s *tally) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		k, n, err := r.Uint64()
		if err != nil {
			return err
		}
		s.counts[k] = n
	}
	return r.Err()
}

// PartitionOf implements stream.Keyed.
func (s *tally) PartitionOf(key []byte, n int) int {
	return stream.PartitionOfUint64(binary.LittleEndian.Uint64(key), n)
}

func (s *tally) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.L1, Combine: errorbound.Disjoint}
}

// relay passes numbers on.
type relay struct{}

func (relay) Process(in uint64, out *stream.Emitter[uint64]) error {
	out.Emit(in)
	return nil
}

// counting is the program of a job that counts numbers by key: two sources, perhaps two relays, three tallies, one sink.
type counting struct {
	n, stop   uint64
	gate      chan struct{}
	relays    bool
	guarantee worker.Guarantee
	params    errorbound.Params
	panicAt   uint64
	panics    atomic.Int64
	pipes     bool
	window    int
	drip      time.Duration
	built     atomic.Int64
	kept      atomic.Int64
	out       connector.Collector[keyed]
}

func (p *counting) program() Program {
	return Program{Name: "counting", Version: "1", Build: p.build}
}

func (p *counting) build(_ context.Context, args []string) (*Blueprint, error) {
	p.built.Add(1)
	t := stream.New("counting")
	workers := 3
	if len(args) > 0 {
		var err error
		if workers, err = strconv.Atoi(args[0]); err != nil {
			return nil, ErrArguments
		}
	}
	s := stream.From(t, "numbers", func(part, parts int) (stream.Source[uint64], error) {
		s := &numbers{n: p.n, parts: uint64(parts), part: uint64(part), stop: p.stop, gate: p.gate, drip: p.drip, closed: make(chan struct{})}
		if p.pipes {
			return pipeSource{s}, nil
		}
		return s, nil
	}, append(p.windows(), stream.Workers(2))...)
	if p.relays {
		s = stream.Then(s, "relay", func() relay { return relay{} }, stream.Workers(2))
	}
	c := stream.Then(s, "tally", func() *tally {
		return &tally{counts: map[uint64]uint64{}, panicAt: p.panicAt, panics: &p.panics}
	}, stream.Workers(workers), stream.Compute(2), stream.EmitOnClose(), stream.HashUint64(func(n uint64) uint64 { return n % keys }))
	stream.To(c, "out", connector.Collect(&p.out))
	return &Blueprint{
		Topology: t, Guarantee: p.guarantee, Params: p.params,
		Keep: func(backup.Store, worker.Job) { p.kept.Add(1) },
	}, nil
}

func (p *counting) windows() []stream.Option {
	if p.window == 0 {
		return nil
	}
	return []stream.Option{stream.WindowItems(uint64(p.window))}
}

// spec is the job's.
func (p *counting) spec() cluster.Spec {
	s := cluster.Spec{Name: "counting", Version: "1", Backups: []string{"store"}, Operators: []cluster.Operator{
		{Name: "numbers", Workers: 2, Compute: 1, Source: true},
		{Name: "tally", Workers: 3, Compute: 2},
		{Name: "out", Workers: 1, Compute: 1, Sink: true},
	}}
	if p.relays {
		s.Operators = append(s.Operators[:1:1], append([]cluster.Operator{{Name: "relay", Workers: 2, Compute: 1}}, s.Operators[1:]...)...)
	}
	return s
}

// counts returns the result: of each key, and how many there were in all.
func (p *counting) counts() (map[uint64]uint64, uint64) {
	counts, total := map[uint64]uint64{}, uint64(0)
	for _, k := range p.out.Items() {
		counts[k.Key] += k.Count
		total += k.Count
	}
	return counts, total
}
