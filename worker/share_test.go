package worker

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// tally is a state whose divergence a test sets. A partial backup clears it down to what theta it was told allows to leave.
type tally struct {
	stream.Measure
	theta       float64
	diverged    float64
	saves       int
	compensated float64
}

func (*tally) Process(uint64, *stream.Emitter[uint64]) error { return nil }
func (*tally) CloseWindow(_ stream.Window, out *stream.Emitter[uint64]) error {
	out.Emit(1)
	return nil
}
func (s *tally) StateDivergence() float64           { return s.diverged }
func (s *tally) SetTheta(theta float64)             { s.theta = theta }
func (s *tally) Compensate(theta float64, _ uint64) { s.compensated = theta }
func (s *tally) RestoreState(r *stream.StateReader) error {
	for r.Next() {
	}
	return r.Err()
}

func (s *tally) BackupState(w *stream.StateWriter) error {
	w.Put([]byte("n"), binary.LittleEndian.AppendUint64(nil, uint64(s.saves)))
	s.saves++
	if s.diverged = min(s.diverged, s.theta/8); w.Whole() {
		s.diverged = 0
	}
	return nil
}

type shaped struct{ tally }

func (s *shaped) Measure() stream.Measure { return s.tally.Measure }

// tallies is an operator of several workers; made are its instances, in the order in which they are made.
func tallies(t *testing.T, m stream.Measure, made *[]*shaped, options ...stream.Option) *stream.Node {
	t.Helper()
	topo := stream.New("shares")
	s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return &counting{n: 10}, nil })
	op := stream.Then(s, "tally", func() *shaped {
		o := &shaped{tally{Measure: m}}
		*made = append(*made, o)
		return o
	}, append(options, stream.EmitOnClose())...)
	stream.To(op, "sink", func(int, int) (stream.Sink[uint64], error) { return discard{}, nil })
	nodes, err := topo.Build()
	require.NoError(t, err)
	return nodes[1]
}

// slowStore holds back what follows the first so many writes until it is let go.
type slowStore struct {
	backup.Store
	held []func()
	hold bool
}

func (s *slowStore) Apply(b *backup.Batch, done func(error)) {
	if !s.hold {
		s.Store.Apply(b, done)
		return
	}
	s.held = append(s.held, func() { s.Store.Apply(b, done) })
}

func (s *slowStore) letGo() {
	s.hold = false
	for _, f := range s.held {
		f()
	}
	s.held = nil
}

// A raise holds at once. A lowering is confirmed when the state is durable to within it, and until then the old theta is
// what a failure may cost. The test is the compute goroutine.
func TestReshare(t *testing.T) {
	store := &slowStore{Store: backup.NewMemory()}
	defer store.Close()
	var made []*shaped
	node := tallies(t, stream.Measure{Alpha: 1, Norm: errorbound.L1}, &made, stream.Workers(2), stream.Compute(2))
	w := load(t, node, 3, store, nil) // Theta 100: 100 * 1/8 * 1/4 each
	m, ok := w.Divisible()
	require.True(t, ok)
	require.Equal(t, errorbound.L1, m.Norm)
	o, op := w.operators[0], made[0]
	require.InDelta(t, 3.125, op.theta, 1e-12)

	w.Reshare(errorbound.Change{Failures: 1, Round: 9, Share: 1})
	require.NoError(t, o.reshare())
	require.InDelta(t, 3.125, op.theta, 1e-12, "of an older incarnation")

	w.Reshare(errorbound.Change{Failures: 2, Round: 1, Share: 0.4})
	require.NoError(t, o.reshare())
	require.Equal(t, 20.0, op.theta)
	require.Equal(t, 20.0, o.policy.Theta())
	require.Zero(t, op.saves)
	require.Zero(t, w.Obeyed(), "the other partition has not")
	require.NoError(t, w.operators[1].reshare())
	require.EqualValues(t, 1, w.Obeyed())

	op.diverged = 9
	w.Reshare(errorbound.Change{Failures: 2, Round: 3, Share: 0.1, Lower: true})
	w.Reshare(errorbound.Change{Failures: 2, Round: 2, Share: 0.9})
	require.NoError(t, w.operators[1].reshare(), "it has nothing to save")
	store.hold = true
	obeyed := make(chan error)
	go func() { obeyed <- o.reshare() }()
	for o.waits.Load() != uint32(forBackup) {
		select {
		case err := <-obeyed:
			t.Fatal("it did not wait for its backup", err)
		default:
		}
	}
	require.EqualValues(t, 1, w.Obeyed())
	store.letGo()
	require.NoError(t, <-obeyed)
	require.EqualValues(t, 3, w.Obeyed())
	require.Equal(t, 5.0, o.policy.Theta(), "the newest round holds, in whatever order they came")
	require.NoError(t, o.policy.Valid(op.diverged))
	require.Equal(t, 1, op.saves)
	require.Equal(t, 5.0, w.Autopsy().Theta())

	saved := w.Saved(nil)
	require.Len(t, saved, 2)
	require.EqualValues(t, 1, saved[0].Commits)
	require.NotZero(t, saved[0].Bytes)
	require.InDelta(t, 9, saved[0].Cleared, 1e-12)
	require.Zero(t, saved[1])

	w.Reshare(errorbound.Change{Failures: 2, Round: 2, Share: 0.9})
	require.NoError(t, o.reshare())
	require.Equal(t, 5.0, op.theta, "of an older round")
}

// A change that comes while a backup is being written waits for it: the state must not be told another theta meanwhile.
func TestReshareWaitsForTheBackupUnderWay(t *testing.T) {
	store := &slowStore{Store: backup.NewMemory()}
	defer store.Close()
	var made []*shaped
	w := load(t, tallies(t, stream.Measure{Alpha: 1}, &made, stream.Workers(2)), 1, store, nil)
	o, op := w.operators[0], made[0]
	op.diverged = 20
	store.hold = true
	require.NoError(t, o.obey())
	require.Equal(t, flying, o.phase.Load())
	w.Reshare(errorbound.Change{Round: 1, Share: 0.5})
	obeyed := make(chan error)
	go func() { obeyed <- o.reshare() }()
	for o.waits.Load() != uint32(forBackup) {
		select {
		case err := <-obeyed:
			t.Fatal("it did not wait", err)
		default:
		}
	}
	store.letGo()
	require.NoError(t, <-obeyed)
	require.Equal(t, 50.0, op.theta)
	require.Equal(t, noFlight, o.phase.Load())
}

// What counts is what the thetas were that were in force, not what equal shares would have been.
func TestCompensationKnowsTheThetasInForce(t *testing.T) {
	store := backup.NewMemory()
	defer store.Close()
	var made []*shaped
	node := tallies(t, stream.Measure{Alpha: 1, Norm: errorbound.L1}, &made, stream.Workers(2), stream.Compute(2))
	w := load(t, node, 4, store, func(c *Config) { c.Grant = &Grant{Share: 0.02, Costs: []float64{0.4, 0.1, 0.06}} })
	require.InDelta(t, 100*0.56/2, made[0].compensated, 1e-9, "no backup: three failures")
	require.InDelta(t, 1, made[0].theta, 1e-12)

	o := w.operators[0]
	require.NoError(t, o.begin(true))
	o.awaitFlight()
	require.NoError(t, o.settle())
	load(t, node, 5, store, func(c *Config) { c.Grant = &Grant{Share: 0.01, Costs: []float64{0.4, 0.1, 0.06, 0.03}} })
	require.InDelta(t, 100*0.03/2, made[2].compensated, 1e-9, "one failure since the backup")
	require.InDelta(t, 100*0.59/2, made[3].compensated, 1e-9, "the other partition has none yet")
}

func TestWhatIsNotDivisible(t *testing.T) {
	added := stream.Measure{Norm: errorbound.Max}
	for name, c := range map[string]struct {
		measure stream.Measure
		options []stream.Option
		change  func(*Config)
	}{
		"one worker":       {added, []stream.Option{stream.Compute(4)}, nil},
		"a maximum":        {stream.Measure{Norm: errorbound.Max, Combine: errorbound.Disjoint}, []stream.Option{stream.Workers(2)}, nil},
		"forgets":          {added, []stream.Option{stream.Workers(2), stream.Forget(1)}, nil},
		"fades":            {added, []stream.Option{stream.Workers(2), stream.Decaying()}, nil},
		"no guarantee":     {added, []stream.Option{stream.Workers(2)}, func(c *Config) { c.Guarantee = None }},
		"error-free":       {added, []stream.Option{stream.Workers(2)}, func(c *Config) { c.Guarantee = ErrorFree }},
		"mini-batch":       {added, []stream.Option{stream.Workers(2)}, func(c *Config) { c.Guarantee = MiniBatch }},
		"nothing":          {added, []stream.Option{stream.Workers(2)}, func(c *Config) { c.Params.Theta = 0 }},
		"without an end":   {added, []stream.Option{stream.Workers(2)}, func(c *Config) { c.Params.Theta = math.Inf(1) }},
		"(what is, as it)": {added, []stream.Option{stream.Workers(2)}, nil},
	} {
		store := backup.NewMemory()
		var made []*shaped
		w := load(t, tallies(t, c.measure, &made, c.options...), 1, store, c.change)
		_, ok := w.Divisible()
		require.Equal(t, name == "(what is, as it)", ok, name)
		require.NoError(t, store.Close())
	}
	store := backup.NewMemory()
	defer store.Close()
	w := load(t, twoNodes(t, 10)[0], 1, store, nil)
	_, ok := w.Divisible()
	require.False(t, ok, "a source")
	require.Zero(t, w.Obeyed())
	require.Empty(t, w.Saved(nil))
}
