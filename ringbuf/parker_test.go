package ringbuf

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireAtRest checks invariant 3 of Parker: back in idle, no token left over.
func requireAtRest(t *testing.T, p *Parker) {
	t.Helper()
	require.Equal(t, parkerIdle, p.state.Load())
	require.Empty(t, p.token)
}

func TestParkSleepsUntilWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewParker()
		var awake atomic.Bool
		go func() {
			p.Prepare()
			p.Park()
			awake.Store(true)
		}()
		synctest.Wait()
		require.False(t, awake.Load(), "nobody woke it")
		p.Wake()
		synctest.Wait()
		require.True(t, awake.Load())
		requireAtRest(t, p)
	})
}

func TestWakeAfterPrepareIsKept(t *testing.T) {
	p := NewParker()
	p.Prepare()
	p.Wake()
	p.Wake() // idempotent
	p.Park()
	requireAtRest(t, p)

	p.Prepare()
	p.Wake()
	require.True(t, p.ParkTimeout(time.Hour))
	requireAtRest(t, p)

	p.Prepare()
	p.Wake()
	require.True(t, p.ParkTimeout(0), "a wake-up wins over a timeout that has passed")
	requireAtRest(t, p)
}

func TestWakeBeforePrepareIsNotKept(t *testing.T) {
	p := NewParker()
	p.Wake()
	p.Prepare()
	require.False(t, p.ParkTimeout(-1))
	requireAtRest(t, p)
}

func TestCancelForgetsTheWakeUp(t *testing.T) {
	p := NewParker()
	p.Cancel() // allowed without Prepare
	requireAtRest(t, p)

	for _, woken := range []bool{false, true} {
		p.Prepare()
		if woken {
			p.Wake()
		}
		p.Cancel()
		requireAtRest(t, p)
		p.Prepare()
		require.False(t, p.ParkTimeout(0), "woken by a wake-up of an earlier wait")
	}
}

// TestCancelWaitsForTheToken stops a waker, by hand, between taking the
// announcement and sending its token.
func TestCancelWaitsForTheToken(t *testing.T) {
	ends := map[string]func(p *Parker){
		"Cancel":      (*Parker).Cancel,
		"Park":        (*Parker).Park,
		"ParkTimeout": func(p *Parker) { p.ParkTimeout(time.Nanosecond) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewParker()
				p.Prepare()
				require.True(t, p.state.CompareAndSwap(parkerPrepared, parkerWoken))
				p.Wake() // by others meanwhile: nothing to do for them
				var ended atomic.Bool
				go func() {
					end(p)
					ended.Store(true)
				}()
				time.Sleep(time.Second) // fake time: the timeout passes
				synctest.Wait()
				require.False(t, ended.Load())
				p.token <- struct{}{}
				synctest.Wait()
				require.True(t, ended.Load())
				requireAtRest(t, p)
			})
		})
	}
}

func TestParkTimeoutTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewParker()
		for _, d := range []time.Duration{time.Hour, time.Millisecond, time.Nanosecond} {
			start := time.Now()
			p.Prepare()
			require.False(t, p.ParkTimeout(d))
			require.Equal(t, d, time.Since(start))
			requireAtRest(t, p)
		}
	})
}

// TestParkTimeoutReusesItsTimer wakes the owner early again and again; a tick
// of an earlier wait must not end a later one.
func TestParkTimeoutReusesItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewParker()
		for range 3 {
			start := time.Now()
			time.AfterFunc(time.Second, p.Wake)
			p.Prepare()
			require.True(t, p.ParkTimeout(2*time.Second))
			require.Equal(t, time.Second, time.Since(start))

			p.Prepare()
			require.False(t, p.ParkTimeout(5*time.Second))
			require.Equal(t, 6*time.Second, time.Since(start))
		}
	})
}

func TestWaitLooksAgainAfterEachWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewParker()
		var looks, goal atomic.Int64
		goal.Store(1 << 62)
		var done atomic.Bool
		go func() {
			p.Wait(func() bool { return looks.Add(1) >= goal.Load() })
			done.Store(true)
		}()
		synctest.Wait()
		for range 3 {
			before := looks.Load()
			p.Wake()
			synctest.Wait()
			require.Equal(t, before+1, looks.Load(), "one look per wake-up")
			require.False(t, done.Load(), "a wake-up alone must not end the wait")
		}
		before := looks.Load()
		goal.Store(0)
		time.Sleep(time.Hour) // fake time
		require.Equal(t, before, looks.Load(), "a waiter that nobody wakes takes no processor time")
		p.Wake()
		synctest.Wait()
		require.True(t, done.Load())
		requireAtRest(t, p)
	})
}

// TestWaitLooksAfterPrepare makes the condition true without a wake-up, right
// after the last look that came before Prepare. That is what a waker does whose
// look at the state came just before the announcement.
func TestWaitLooksAfterPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewParker()
		looks := 0
		p.Wait(func() bool {
			looks++
			return looks > usual.rounds
		})
		require.Equal(t, usual.rounds+1, looks)
		requireAtRest(t, p)
	})
}

// A waiter that looks on in vain does so more and more rarely, and often again when it was of use.
func TestPatience(t *testing.T) {
	for name, how := range map[string]patience{"usual": usual, "great": great} {
		t.Run(name, func(t *testing.T) {
			p := NewParker()
			if how == great {
				p.WatchClosely()
			}
			// looks returns how often p looks if its condition becomes true with the look at.
			looks := func(at int) int {
				n := 0
				seen := p.Look(func() bool { n++; return n == at })
				require.Equal(t, n == at, seen)
				return n
			}
			never := 2 * how.rounds
			for skip := 0; skip < how.skip; skip = 2*skip + 1 {
				for range skip {
					require.Equal(t, fewRounds, looks(never))
				}
				require.Equal(t, how.rounds, looks(never), "after %d waits", skip)
			}
			for range 3 {
				for range how.skip {
					require.Equal(t, fewRounds, looks(never))
				}
				require.Equal(t, how.rounds, looks(never), "never given up for good")
			}
			p.left = 0
			for range 4 {
				require.Equal(t, how.rounds, looks(how.rounds), "as long as it is of use")
			}
			require.Equal(t, how.rounds, looks(never))
			require.Equal(t, 1, p.left)

			p.left = 0
			patient.Store(maxPatient)
			require.Equal(t, fewRounds, looks(never), "enough others look on")
			patient.Store(maxPatient - 1)
			require.Equal(t, how.rounds, looks(never))
			require.EqualValues(t, maxPatient-1, patient.Swap(0))
		})
	}
}

func TestWaitReturnsAtOnceIfTrue(t *testing.T) {
	p := NewParker()
	looks := 0
	p.Wait(func() bool { looks++; return true })
	require.Equal(t, 1, looks)
	requireAtRest(t, p)
}

func TestParkerMisusePanics(t *testing.T) {
	const unprepared = "ringbuf: Park of a Parker that is not prepared"
	p := NewParker()
	require.PanicsWithValue(t, unprepared, p.Park)
	require.PanicsWithValue(t, unprepared, func() { p.ParkTimeout(time.Second) })
	p.Prepare()
	require.PanicsWithValue(t, "ringbuf: Prepare of a Parker that is in use", p.Prepare)
	p.Cancel()
	requireAtRest(t, p)
}

func TestNothingAllocates(t *testing.T) {
	spsc, mpsc, p := NewSPSC[*int](3), NewMPSC[*int](3), NewParker()
	v := new(int)
	ops := map[string]func(){
		"SPSC": func() { spsc.TryPush(v); spsc.TryPop() },
		"MPSC": func() { mpsc.TryPush(v); mpsc.TryPop() },
		"Park": func() { p.Prepare(); p.Wake(); p.Park() },
		"ParkTimeout": func() {
			p.Prepare()
			p.ParkTimeout(time.Microsecond)
		},
		"Wait": func() {
			var got *int
			spsc.TryPush(v)
			p.Wait(func() (ok bool) { got, ok = spsc.TryPop(); return ok })
			if got != v {
				panic("popped another value than was pushed")
			}
		},
	}
	for name, op := range ops {
		require.Zero(t, testing.AllocsPerRun(100, op), name)
	}
}
