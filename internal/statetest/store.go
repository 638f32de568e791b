package statetest

import (
	"io"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// State is what a Store asks of a state.
type State interface {
	stream.StateDivergence
	stream.BackupState
	stream.BackupDurable
}

// Backup returns the bytes of a backup of state, which is in flight from then on, as far as the state knows.
func Backup(t require.TestingT, state stream.BackupState, whole bool) []byte {
	w := stream.NewStateWriter(nil, whole)
	require.NoError(t, state.BackupState(w))
	return append([]byte{}, w.Bytes()...)
}

// Element returns a backup of one element.
func Element(key, value string) []byte {
	w := stream.NewStateWriter(nil, false)
	w.Put([]byte(key), []byte(value))
	return w.Bytes()
}

// Reader reads backups one after the other, as a recovery does.
func Reader(backups ...[]byte) *stream.StateReader {
	return stream.NewStateReader(func() ([]byte, error) {
		if len(backups) == 0 {
			return nil, io.EOF
		}
		next := backups[0]
		backups = backups[1:]
		return next, nil
	})
}

// Store plays the runtime and its backup store for one state: a backup is in flight until the test says that it is
// durable or lost, and at most one is.
type Store struct {
	state   State
	durable [][]byte // a whole backup, or none, and the partial ones after it
	flight  []byte
	whole   bool // of the one in flight
	flying  bool
}

// NewStore returns a store without a backup of state.
func NewStore(state State) *Store { return &Store{state: state} }

// Start begins a backup. One that is still in flight has been lost.
func (s *Store) Start(t require.TestingT, whole bool) {
	s.flight, s.whole, s.flying = Backup(t, s.state, whole), whole, true
}

// Land makes the backup in flight durable and tells the state. Without one it does nothing.
func (s *Store) Land() {
	if s.flying {
		s.LandUnheard()
		s.state.BackupDurable()
	}
}

// LandUnheard makes the backup in flight durable, but nobody tells the state.
func (s *Store) LandUnheard() { s.durable, s.flying = s.Landed(), false }

// Lose drops the backup in flight. The state is not told, since nobody could.
func (s *Store) Lose() { s.flying = false }

// Flying says whether a backup is in flight.
func (s *Store) Flying() bool { return s.flying }

// Save starts a backup and lands it.
func (s *Store) Save(t require.TestingT, whole bool) {
	s.Start(t, whole)
	s.Land()
}

// Durable returns the backups that a recovery finds for certain.
func (s *Store) Durable() [][]byte { return s.durable }

// Landed returns the backups that it finds if the one in flight has become durable.
func (s *Store) Landed() [][]byte {
	switch {
	case !s.flying:
		return s.durable
	case s.whole:
		return [][]byte{s.flight}
	}
	return append(slices.Clip(s.durable), s.flight)
}

// Left returns all that a failure now can leave: Durable, and Landed if that is something else.
func (s *Store) Left() [][][]byte {
	if !s.flying {
		return [][][]byte{s.durable}
	}
	return [][][]byte{s.durable, s.Landed()}
}

// CheckLoss restores a fresh state from what a failure now would leave, for each of the things that it can: none may be
// farther from the state than the divergence that it tells, which must be at most theta. distance is taken from the state
// to the restored one. Rounding is forgiven: 1e-12 of the divergence, and squares so small that they have lost precision.
func CheckLoss[S stream.RestoreState](t require.TestingT, s *Store, theta float64, fresh func() S, distance func(restored S) float64) {
	d := s.state.StateDivergence()
	require.LessOrEqual(t, d, theta*(1+1e-12), "the divergence is above theta")
	for _, backups := range s.Left() {
		restored := fresh()
		require.NoError(t, restored.RestoreState(Reader(backups...)))
		require.LessOrEqual(t, distance(restored), d*(1+1e-12)+1e-150, "more would be lost than StateDivergence says")
	}
}

// Recover loses what is in flight, restores state from what is durable, and goes on with it.
func (s *Store) Recover(t require.TestingT, state interface {
	State
	stream.RestoreState
}) {
	s.Lose()
	require.NoError(t, state.RestoreState(Reader(s.durable...)))
	s.state = state
}

// Room makes room for an item of alpha as the runtime does: it starts a partial backup when the divergence has passed
// 3/4 theta, and waits for one only where the item would not fit. It fails the test if there is no room after the backup
// in flight and a new one.
func (s *Store) Room(t require.TestingT, theta, alpha float64) {
	for range 3 {
		d := s.state.StateDivergence()
		if !s.flying && (d > theta*3/4 || d+alpha > theta) {
			s.Start(t, false)
			d = s.state.StateDivergence()
		}
		if d+alpha <= theta {
			return
		}
		s.Land()
	}
	require.Fail(t, "no room for an item after all backups", "divergence %v, theta %v", s.state.StateDivergence(), theta)
}

// Settle is what the runtime does after an item of unknown alpha, which counts as processed only when the divergence is
// at most theta: it waits for the backup in flight and for new ones. It fails the test if that does not help.
func (s *Store) Settle(t require.TestingT, theta float64) {
	for range 4 {
		if s.state.StateDivergence() <= theta {
			return
		}
		s.Land()
		s.Save(t, false)
	}
	require.Fail(t, "the divergence stays above theta", "divergence %v, theta %v", s.state.StateDivergence(), theta)
}

// Draw draws what may happen to backups at any time: one starts, whole or partial, or becomes durable, or is lost, and
// mostly nothing.
func (s *Store) Draw(t *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(t, "backup") {
	case 0:
		if !s.flying {
			s.Start(t, rapid.Bool().Draw(t, "whole"))
		}
	case 1, 2:
		s.Land()
	case 3:
		s.Lose()
	}
}
