package threshold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// Each test here cites one claim of the theory and drives the machines as far as they allow.

var series = []errorbound.Series{errorbound.Geometric, errorbound.Telescoping}

// cost is what one failure of a partition takes at the worst moment.
type cost struct {
	state   float64 // divergence from the failure-free run
	outputs float64
}

// worstFailure fills a partition to the limits of its machines and lets it die: divergence up to theta with no backup
// durable, as many acked items as Receiver allows, as many outputs under way as Sender allows.
func worstFailure(t *testing.T, b threshold.Budget, alpha, beta float64) cost {
	t.Helper()
	back := threshold.NewBackup(threshold.BackupConfig{Theta: b.Theta, Alpha: alpha})
	d := 0.0
	for {
		n := back.Run(d, 1<<20)
		if n == 0 || alpha > b.Theta { // the one item that would wait for its backup does not count
			break
		}
		d += float64(n) * alpha
		if back.Decide(d) == threshold.Wait && back.Valid(d) != nil {
			t.Fatalf("divergence %v counted, theta is %v", d, b.Theta)
		}
	}
	recv := threshold.NewReceiver(b.L)
	recv.Receive(b.L + 1000)
	recv.Ack()
	send := threshold.NewSender(b.Gamma)
	send.Emitted(send.Credit())
	require.NoError(t, recv.Valid())
	require.NoError(t, send.Valid())
	return cost{
		state:   d + float64(recv.AtRisk())*alpha,
		outputs: float64(send.Unacked()) + float64(recv.AtRisk())*beta,
	}
}

// "One failure of one worker: state divergence at most theta + l*alpha; lost outputs at most gamma + l*beta", and the
// machines let a partition use what it is granted.
func TestSingleFailure(t *testing.T) {
	b := threshold.Budget{Theta: 100, L: 20, Gamma: 30}
	for _, alpha := range []float64{1, 3, 7} {
		for _, beta := range []float64{0, 1, 5} {
			c := worstFailure(t, b, alpha, beta)
			require.LessOrEqual(t, c.state, b.Theta+float64(b.L)*alpha)
			require.Greater(t, c.state, b.Theta+float64(b.L)*alpha-alpha)
			require.Equal(t, float64(b.Gamma)+float64(b.L)*beta, c.outputs)
		}
	}
}

// "Many failures of one worker: the sums stay at most Theta + L*alpha and Gamma + L*beta", for any number of them.
// Gamma is large enough that its grants do not run out; for the rest see TestOverdraftIsAccountedFor.
func TestManyFailuresOfOneWorker(t *testing.T) {
	const alpha, beta = 3, 2
	for _, s := range series {
		p := errorbound.Params{Theta: 1e6, L: 1e5, Gamma: 1 << 62, Series: s}
		var sum cost
		for k := uint64(0); k <= 60; k++ {
			c := worstFailure(t, threshold.Split(threshold.Config{Params: p, Partitions: 1, Failures: k}), alpha, beta)
			sum.state += c.state
			sum.outputs += c.outputs
			require.LessOrEqual(t, sum.state, p.StateBound(alpha), "%v after %d failures", s, k+1)
			require.LessOrEqual(t, sum.outputs, p.LossBound(beta), "%v after %d failures", s, k+1)
		}
		require.Greater(t, sum.state, 0.9*p.StateBound(alpha), "%v: the budget is there to be used", s)
	}
}

// A budget of Gamma that has run out still lets one item be under way: what that costs is in Params.Overdraft.
func TestOverdraftIsAccountedFor(t *testing.T) {
	for _, s := range series {
		for _, gamma := range []uint64{0, 1, 5, 1000} {
			for _, n := range []int{1, 3} {
				p := errorbound.Params{Gamma: gamma, Series: s}
				lost := uint64(0)
				for k := range uint64(60) {
					b := threshold.Split(threshold.Config{Params: p, Partitions: n, Failures: k})
					lost += uint64(n) * threshold.NewSender(b.Gamma).Credit()
				}
				require.LessOrEqual(t, lost, p.Gamma+p.Overdraft(n, 60), "%v, gamma %d, %d partitions", s, gamma, n)
			}
		}
	}
}

// "n copies of an operator: each starts at Theta/(2n), L/(2n), Gamma/(2n)"; "n compute threads of a worker: theta/n
// each": threads and copies are partitions alike.
func TestCopiesAndThreadsStartAtTheirPart(t *testing.T) {
	p := errorbound.Params{Theta: 1200, L: 120, Gamma: 240}
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count} {
		for n := 1; n <= 6; n++ {
			b := threshold.Split(threshold.Config{Params: p, Norm: norm, Partitions: n})
			require.InEpsilon(t, 1200/(2*float64(n)), b.Theta, 1e-12)
			require.Equal(t, 120/(2*uint64(n)), b.L)
			require.Equal(t, 240/(2*uint64(n)), b.Gamma)
		}
	}
}

// "The bounds depend neither on the number of failures nor on the number of workers": each of n partitions fails its
// own number of times.
func TestManyFailuresOfManyWorkers(t *testing.T) {
	const alpha, beta = 2, 3
	for _, s := range series {
		p := errorbound.Params{Theta: 1e6, L: 1e5, Gamma: 1 << 40, Series: s}
		for n := 1; n <= 12; n += 3 {
			var sum cost // states are added up downstream
			for i := range n {
				for k := range uint64(5 * i % 23) {
					b := threshold.Split(threshold.Config{Params: p, Partitions: n, Failures: k})
					c := worstFailure(t, b, alpha, beta)
					sum.state += c.state
					sum.outputs += c.outputs
				}
			}
			require.LessOrEqual(t, sum.state, p.StateBound(alpha), "%v, %d workers", s, n)
			require.LessOrEqual(t, sum.outputs, p.LossBound(beta), "%v, %d workers", s, n)
		}
	}
}

// "A change of n re-splits what is left, never what was spent": k goes on counting.
func TestChangeOfPartitionsKeepsTheSum(t *testing.T) {
	for _, s := range series {
		p := errorbound.Params{Theta: 1e6, L: 1e6, Gamma: 1e6, Series: s}
		var theta float64
		var l, gamma uint64
		for k := range uint64(40) {
			n := 1 + int(k*7%5)
			b := threshold.Split(threshold.Config{Params: p, Norm: errorbound.L1, Partitions: n, Failures: k})
			theta += float64(n) * b.Theta
			l += uint64(n) * b.L
			gamma += uint64(n) * b.Gamma
		}
		require.LessOrEqual(t, theta, p.Theta*(1+1e-12))
		require.LessOrEqual(t, l, p.L)
		require.LessOrEqual(t, gamma, p.Gamma)
	}
}

// "A pipeline of m operators": a failure of stage i costs beta^(m-i) times as much at the end. All stages fail often.
func TestPipelineKeepsTheBoundAtItsEnd(t *testing.T) {
	const m, alpha = 4, 1
	for _, beta := range []float64{1, 2, 10} {
		whole := errorbound.Params{Theta: 1e9, L: 1e8, Gamma: 1 << 50}
		var lost float64
		for i := 1; i <= m; i++ {
			share := errorbound.StageShare(i, m, beta)
			p := whole
			p.Theta *= share
			p.L = uint64(float64(p.L) * share)
			p.Gamma = uint64(float64(p.Gamma) * share)
			for k := range uint64(25) {
				c := worstFailure(t, threshold.Split(threshold.Config{Params: p, Partitions: 1, Failures: k}), alpha, beta)
				lost += c.outputs * math.Pow(beta, float64(m-i))
			}
		}
		require.LessOrEqual(t, lost, whole.LossBound(beta), "beta %v", beta)
		require.Greater(t, lost, 0.9*whole.LossBound(beta), "beta %v", beta)
	}
}

// "Windows: hopping: reset at the end of a window": errors of one window are gone with it, so each window has the
// whole budget, which it keeps whatever the windows before have cost.
func TestWindowsResetTheFailureCount(t *testing.T) {
	p := errorbound.Params{Theta: 1e5, L: 1e4, Gamma: 1 << 30}
	first := threshold.Split(threshold.Config{Params: p, Partitions: 1})
	for range 5 {
		sum := 0.0
		for k := range uint64(20) {
			b := threshold.Split(threshold.Config{Params: p, Partitions: 1, Failures: k})
			if k == 0 {
				require.Equal(t, first, b)
			}
			sum += worstFailure(t, b, 1, 1).state
		}
		require.LessOrEqual(t, sum, p.StateBound(1))
	}
}

// "k must be durable before a recovered worker resumes, or repeated crashes break the sum."
func TestForgottenFailureCountBreaksTheBound(t *testing.T) {
	p := errorbound.Params{Theta: 1e4, L: 1e3, Gamma: 1e3}
	sum := 0.0
	for range 5 {
		sum += worstFailure(t, threshold.Split(threshold.Config{Params: p, Partitions: 1}), 1, 1).state
	}
	require.Greater(t, sum, p.StateBound(1))
}

// "Backups in flight must count against theta": a state that restarts its reading at the snapshot would otherwise be
// twice theta from what is durable.
func TestBackupInFlightCounts(t *testing.T) {
	b := threshold.NewBackup(threshold.BackupConfig{Theta: 10, Alpha: 1})
	require.Equal(t, 10, b.Run(0, 100))
	require.Equal(t, threshold.Start, b.Decide(6))
	b.Started(6, 0)
	require.Equal(t, 4, b.Run(0, 100), "6 are in flight")
	require.Equal(t, threshold.Continue, b.Decide(3))
	require.Equal(t, threshold.Wait, b.Decide(4))
	require.Equal(t, 10.0, b.Divergence(4))
	require.NoError(t, b.Valid(4))
	require.ErrorIs(t, b.Valid(5), threshold.ErrInvariant)
	b.Durable(4)
	require.Equal(t, threshold.Continue, b.Decide(4))
	require.Equal(t, 6, b.Run(4, 100))
}

// Why a state whose changes can cancel must report the length of its path (doc.go): with the distance, a partition
// that logs every second item never backs up, and its recovery is off without bound.
func TestDistanceIsNoDivergenceWhereItemsAreLogged(t *testing.T) {
	const theta, pairs = 10, 50
	back := threshold.NewBackup(threshold.BackupConfig{Theta: theta})
	recv := threshold.NewReceiver(1)
	state, recovered, path := 0.0, 0.0, 0.0
	count := func(change float64) {
		state += change
		path += math.Abs(change)
		require.NotEqual(t, threshold.Wait, back.Decide(math.Abs(state)), "the distance never passes theta")
		recv.Processed(recv.Done() + 1)
		require.NoError(t, recv.Valid())
	}
	for range pairs {
		recv.Receive(1)
		recv.Ack()
		count(+9) // processed, not logged: lost
		recv.Receive(1)
		from, to := recv.Pending() // a sender is blocked: the other item of the pair goes to the log
		require.Equal(t, to, from+1)
		recv.Logged(to)
		recv.Ack()
		recovered -= 9 // what a recovery replays
		count(-9)
	}
	require.Zero(t, state)
	require.Equal(t, -9.0*pairs, recovered)
	require.Equal(t, threshold.Wait, threshold.NewBackup(threshold.BackupConfig{Theta: theta}).Decide(path),
		"the path length would have asked for a backup")
}
