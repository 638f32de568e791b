package state

import (
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// ready is what every state of this package can do.
type ready interface {
	stream.StateDivergence
	stream.BackupState
	stream.BackupDurable
	stream.RestoreState
	stream.Measurer
}

// store plays the runtime and its backup store for one state: backups become durable, or are lost, when the test says
// so.
type store struct {
	state   ready
	durable [][]byte // the last whole backup and the partial ones after it
	flight  []byte
	whole   bool
	flying  bool
}

func (s *store) start(t require.TestingT, whole bool) {
	w := stream.NewStateWriter(nil, whole)
	require.NoError(t, s.state.BackupState(w))
	s.flight, s.whole, s.flying = append([]byte{}, w.Bytes()...), whole, true
}

// land makes the backup in flight durable.
func (s *store) land() {
	if !s.flying {
		return
	}
	s.durable, s.flying = s.after(), false
	s.state.BackupDurable()
}

// lose drops the backup in flight.
func (s *store) lose() { s.flying = false }

// after returns what is durable once the backup in flight is.
func (s *store) after() [][]byte {
	if !s.flying {
		return s.durable
	}
	if s.whole {
		return [][]byte{s.flight}
	}
	return append(s.durable[:len(s.durable):len(s.durable)], s.flight)
}

// before makes room for an item of alpha, as the runtime does: start early, wait only at theta.
func (s *store) before(t require.TestingT, theta, alpha float64) {
	for range 3 { // one for the backup in flight, one for a new one
		d := s.state.StateDivergence()
		fits := d+alpha <= theta
		if !s.flying && (d > theta*3/4 || !fits) {
			s.start(t, false)
			d = s.state.StateDivergence()
		}
		if d+alpha <= theta {
			return
		}
		s.land()
	}
	require.Fail(t, "no room for an item after all backups", "d=%v theta=%v", s.state.StateDivergence(), theta)
}

// settle is what the runtime does after an item of unknown alpha, which counts as processed only afterwards.
func (s *store) settle(t require.TestingT, theta float64) {
	for range 4 {
		if s.state.StateDivergence() <= theta {
			return
		}
		s.land()
		s.start(t, false)
		s.land()
	}
	require.Fail(t, "divergence stays above theta", "d=%v theta=%v", s.state.StateDivergence(), theta)
}

func chunks(list [][]byte) *stream.StateReader {
	return stream.NewStateReader(func() ([]byte, error) {
		if len(list) == 0 {
			return nil, io.EOF
		}
		c := list[0]
		list = list[1:]
		return c, nil
	})
}

// check restores what a failure now would leave, with and without the backup in flight, and compares.
func check[S ready](t require.TestingT, s *store, theta float64, fresh func() S, distance func(restored S) float64) {
	d := s.state.StateDivergence()
	require.LessOrEqual(t, d, theta*(1+1e-12), "but for the rounding of the last addition")
	for _, list := range [][][]byte{s.durable, s.after()} {
		restored := fresh()
		require.NoError(t, restored.RestoreState(chunks(list)))
		// 1e-150: the squares of smaller distances lose precision, here and in the states, and are then 0.
		require.LessOrEqual(t, distance(restored), d*(1+1e-12)+1e-150, "true divergence above what StateDivergence says")
	}
}

// backups draws what may happen to backups at any time.
func backups(t *rapid.T, s *store) {
	switch rapid.IntRange(0, 9).Draw(t, "backup") {
	case 0:
		if !s.flying {
			s.start(t, rapid.Bool().Draw(t, "whole"))
		}
	case 1, 2:
		s.land()
	case 3:
		s.lose()
	}
}

func thetas(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{0, 0.5, 1, 3, 10, 100, 2500}).Draw(t, "theta")
}

// fuzzRestore feeds bytes to RestoreState: it must not panic, and what it accepts must survive a backup.
func fuzzRestore[S ready](f *testing.F, fresh func() S, same func(t *testing.T, a, b S), seeds ...func(S)) {
	for _, seed := range seeds {
		s := fresh()
		seed(s)
		w := stream.NewStateWriter(nil, true)
		require.NoError(f, s.BackupState(w))
		f.Add(w.Bytes())
	}
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		a := fresh()
		if err := a.RestoreState(chunks([][]byte{wire})); err != nil {
			require.ErrorIs(t, err, stream.ErrState)
			return
		}
		w := stream.NewStateWriter(nil, true)
		require.NoError(t, a.BackupState(w))
		b := fresh()
		require.NoError(t, b.RestoreState(chunks([][]byte{w.Bytes()})))
		same(t, a, b)
	})
}

var inf = math.Inf(1)
