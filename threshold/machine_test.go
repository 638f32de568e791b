package threshold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

func TestInfiniteThetaNeverBacksUp(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: math.Inf(1), Alpha: 1})
	for _, d := range []float64{0, 1e300, math.Inf(1), math.NaN()} {
		require.Equal(t, 1000, b.Run(d, 1000))
		require.Equal(t, threshold.Continue, b.Decide(d))
	}
	for _, k := range []uint64{0, 100, 5000, math.MaxUint64} {
		budget := threshold.Split(threshold.Config{Params: errorbound.Params{Theta: math.Inf(1)}, Partitions: 3, Failures: k})
		require.Equal(t, math.Inf(1), budget.Theta, "after %d failures", k)
	}
}

// Theta = 0, L = 0, Gamma = 1: every item is logged, acked, processed and committed one by one.
func TestStrictestBudgetGoesItemByItem(t *testing.T) {
	recv, send := threshold.NewReceiver(0), threshold.NewSender(1)
	back := threshold.NewBackup(threshold.BackupConfig{Theta: 0, Alpha: 1})
	for i := uint64(1); i <= 5; i++ {
		require.Equal(t, uint64(1), send.Credit())
		send.Emitted(1)
		require.Zero(t, send.Credit())
		recv.Receive(1)
		require.Equal(t, i-1, recv.Ack(), "not before it is logged")
		require.Equal(t, recv.Done(), recv.Gate(), "nor processed")
		require.True(t, recv.MustLog())
		from, to := recv.Pending()
		require.Equal(t, []uint64{i - 1, i}, []uint64{from, to})
		recv.Logged(to)
		send.Acked(recv.Ack())
		require.Equal(t, i, recv.Gate())

		require.Equal(t, 1, back.Run(0, 100), "alpha is over theta: one item, which waits")
		require.Equal(t, threshold.Wait, back.Decide(1))
		back.Started(1, 0)
		require.Equal(t, threshold.Wait, back.Decide(0), "still in flight")
		require.Zero(t, back.Run(0, 100))
		back.Durable(0)
		require.Equal(t, threshold.Continue, back.Decide(0))
		recv.Processed(i)
		require.NoError(t, recv.Valid())
	}
}

func TestNaNMeansBackUpNow(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 10, Alpha: 1})
	require.Equal(t, 10, b.Run(0, 100))
	require.Equal(t, threshold.Wait, b.Decide(math.NaN()))
	require.Zero(t, b.Run(math.NaN(), 100))
	b.Started(math.NaN(), math.NaN())
	require.Equal(t, threshold.Wait, b.Decide(math.NaN()))
	b.Durable(math.NaN())
	require.Equal(t, threshold.Continue, b.Decide(math.NaN()), "the backup holds all: the items count")
	require.Equal(t, 1, b.Run(math.NaN(), 100), "a state that cannot tell goes item by item")
	require.Equal(t, threshold.Wait, b.Decide(math.NaN()))
}

// What was processed while a backup was in flight may need a second one: one wait is not enough.
func TestWaitIsAskedAgain(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 5})
	require.Equal(t, threshold.Start, b.Decide(3))
	b.Started(3, 0)
	require.Equal(t, 1, b.Run(0, 9))
	require.Equal(t, threshold.Wait, b.Decide(6))
	b.Durable(6)
	require.Equal(t, threshold.Wait, b.Decide(6), "6 is over theta even alone")
	b.Started(6, 0)
	b.Durable(0)
	require.Equal(t, threshold.Continue, b.Decide(0))
}

func TestSelfAccountingStartsLaterAndAddsNothing(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 8, SelfAccounting: true})
	require.Equal(t, threshold.Continue, b.Decide(6))
	require.Equal(t, threshold.Start, b.Decide(6.5))
	b.Started(6.5, 6.5)
	require.Equal(t, 8.0, b.Divergence(8))
	require.Equal(t, threshold.Continue, b.Decide(8))
	require.Equal(t, threshold.Wait, b.Decide(8.5))
	b.Durable(2)
	require.Equal(t, threshold.Continue, b.Decide(2))
}

func TestBeginMovesTheStart(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 8, SelfAccounting: true, Begin: 0.875})
	require.Equal(t, threshold.Continue, b.Decide(7))
	require.Equal(t, threshold.Start, b.Decide(7.5))
}

// A commit made for another reason takes elements along if a backup is due or nearly, and whenever one must be waited for.
func TestPays(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 8, Alpha: 1, SelfAccounting: true})
	require.False(t, b.Pays(0))
	require.False(t, b.Pays(3))
	require.True(t, b.Pays(3.5))
	require.True(t, b.Pays(math.NaN()))
	b = threshold.NewBackup(threshold.BackupConfig{Theta: 8, Alpha: 7, SelfAccounting: true})
	require.Zero(t, b.Run(1.5, 10), "one more would be too much")
	require.True(t, b.Pays(1.5), "or Run would wait for a backup that changes nothing")
	b = threshold.NewBackup(threshold.BackupConfig{Theta: math.Inf(1), SelfAccounting: true})
	require.False(t, b.Pays(math.Inf(1)))
	b = threshold.NewBackup(threshold.BackupConfig{SelfAccounting: true})
	require.False(t, b.Pays(0))
	require.True(t, b.Pays(1e-300))
}

// A partial backup that cannot bring the state under the start threshold is not begun over and over.
func TestFutileBackupIsNotRepeated(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 8, Alpha: 4})
	require.Equal(t, threshold.Start, b.Decide(5))
	b.Started(5, 5)
	b.Durable(5)
	require.Equal(t, threshold.Continue, b.Decide(5))
	require.Equal(t, 1, b.Run(5, 100), "5 and alpha are over theta, but there is no better")
	require.Equal(t, threshold.Wait, b.Decide(9))
}

func TestFailedBackupCountsUntilTheNext(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 10, Alpha: 1})
	b.Started(6, 0)
	b.Failed()
	require.False(t, b.InFlight())
	require.Equal(t, 8.0, b.Divergence(2))
	require.Equal(t, 2, b.Run(2, 100))
	require.Equal(t, threshold.Start, b.Decide(4), "no room for another item")
	b.Started(4, 0)
	require.Equal(t, 10.0, b.Divergence(0), "both are in flight now")
	b.Durable(0)
	require.Zero(t, b.Divergence(0))
}

// Each Valid names the invariant that is broken.
func TestValidNamesTheInvariant(t *testing.T) {
	r := threshold.NewReceiver(1)
	r.Processed(1)
	require.ErrorContains(t, r.Valid(), "R1")
	r = threshold.NewReceiver(1)
	r.Receive(5)
	r.Processed(3)
	require.ErrorContains(t, r.Valid(), "R3")
	r.Ack()
	require.NoError(t, r.Valid())

	s := threshold.NewSender(2)
	s.Emitted(3)
	require.ErrorContains(t, s.Valid(), "S2")
	s.Acked(4)
	require.ErrorContains(t, s.Valid(), "S1")
	require.Zero(t, s.Unacked(), "an ack of what was never sent is no credit")

	m := threshold.NewMarks(2)
	m.Processed(3)
	require.ErrorContains(t, m.Valid(), "M2")
	require.Equal(t, uint64(3), m.Gate(), "no room, not less than none")
	m.Committed(4)
	require.ErrorContains(t, m.Valid(), "M1")

	b := threshold.NewBackup(threshold.BackupConfig{Theta: 2})
	require.ErrorContains(t, b.Valid(3), "B1")
	for _, err := range []error{s.Valid(), m.Valid(), b.Valid(3)} {
		require.ErrorIs(t, err, threshold.ErrInvariant)
	}
}

func TestCountersNearTheirEnd(t *testing.T) {
	r := threshold.NewReceiver(math.MaxUint64)
	r.Receive(math.MaxUint64)
	require.Equal(t, uint64(math.MaxUint64), r.Ack())
	require.Equal(t, uint64(math.MaxUint64), r.Gate())
	s := threshold.NewSender(math.MaxUint64)
	s.Emitted(math.MaxUint64 - 1)
	require.Equal(t, uint64(1), s.Credit())
	m := threshold.NewMarks(math.MaxUint64)
	require.Equal(t, uint64(math.MaxUint64), m.Gate())
	require.False(t, m.Due())
}

// Forgotten failures give their share back at once; nothing takes a limit back that may be in use.
func TestLimitsOnlyRise(t *testing.T) {
	r := threshold.NewReceiver(2)
	r.Receive(9)
	require.Equal(t, uint64(2), r.Ack())
	r.Raise(5)
	require.Equal(t, uint64(5), r.Ack())
	require.Equal(t, uint64(10), r.Gate())
	r.Raise(1)
	require.Equal(t, uint64(5), r.Limit())
	require.NoError(t, r.Valid())

	s := threshold.NewSender(0)
	s.Emitted(1)
	require.Zero(t, s.Credit())
	s.Raise(4)
	require.Equal(t, uint64(3), s.Credit())
	s.Raise(2)
	require.Equal(t, uint64(4), s.Window())

	m := threshold.NewMarks(2)
	m.Processed(2)
	require.True(t, m.Due())
	m.Raise(6)
	require.False(t, m.Due())
	require.Equal(t, uint64(6), m.Gate())
	m.Raise(1)
	require.Equal(t, uint64(6), m.Window())
}

func TestActionNames(t *testing.T) {
	require.Equal(t, []string{"continue", "start", "wait", "action(9)"}, []string{threshold.Continue.String(),
		threshold.Start.String(), threshold.Wait.String(), threshold.Action(9).String()})
}

// One slab's worth of calls on the hot path.
func BenchmarkPerSlab(b *testing.B) {
	recv, send := threshold.NewReceiver(1000), threshold.NewSender(1000)
	back := threshold.NewBackup(threshold.BackupConfig{Theta: 1e12, Alpha: 1})
	b.ReportAllocs()
	var total uint64
	for range b.N {
		total += 256
		send.Emitted(256)
		recv.Receive(256)
		n := back.Run(0, 256)
		if back.Decide(float64(n)) == threshold.Continue && recv.Gate() >= recv.Done() {
			recv.Processed(total)
		}
		send.Acked(recv.Ack())
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	recv, send, marks := threshold.NewReceiver(10), threshold.NewSender(10), threshold.NewMarks(10)
	back := threshold.NewBackup(threshold.BackupConfig{Theta: 3, Alpha: 1})
	var total uint64
	require.Zero(t, testing.AllocsPerRun(100, func() {
		total++
		send.Emitted(1)
		recv.Receive(1)
		recv.Ack()
		if back.Run(2.5, 1) == 0 {
			back.Started(2.5, 0)
			back.Durable(0)
		}
		back.Decide(1)
		recv.Processed(total)
		marks.Processed(total)
		if marks.Due() && marks.Gate() >= total {
			marks.Committed(total)
		}
		send.Acked(recv.Ack())
	}))
}
