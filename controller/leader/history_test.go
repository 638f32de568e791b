package leader

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/thorough"
)

var histories = flag.Int("histories", thorough.Number(1, 2), "seeds of TestHistories")

// TestHistories has five controllers compete for a minute, over connections that are cut, lose, delay and repeat nothing but late
// writes, while nodes and jobs come and go. The history of each record must be that of a register with
// compare-and-set, at no time may two leaders act, and no record may go back to an earlier leader.
func TestHistories(t *testing.T) {
	for seed := range uint64(*histories) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			var s *store
			in(t, seed, func(t *testing.T, w *world, ctx context.Context) {
				s = w.store
				compete(t, w, ctx, rand.New(rand.NewPCG(seed, 2)))
			})
			terms := oneAtATime(t, s.calls)
			forward(t, s.log)
			t.Logf("%d calls, %d terms in which a leader has acted", len(s.calls), terms)
			require.Greater(t, terms, 1)
			linearizable(t, s.calls)
		})
	}
}

func compete(t *testing.T, w *world, ctx context.Context, draw *rand.Rand) {
	controllers := make([]*process, 5)
	for i := range controllers {
		controllers[i] = w.controller(i)
	}
	alive, die := context.WithCancel(ctx)
	w.node(alive, "a", 3*time.Second)
	w.node(ctx, "b", 3*time.Second)
	var jobs []string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Duration(50+draw.IntN(500)) * time.Millisecond) {
		i := draw.IntN(len(controllers))
		c := controllers[i]
		if leads := slices.IndexFunc(controllers, func(p *process) bool { return p.name == w.leader().Controller }); leads >= 0 && draw.IntN(3) == 0 {
			i, c = leads, controllers[leads]
		}
		switch draw.IntN(8) {
		case 0, 1:
			c.client.setCut(true)
		case 2, 3:
			for _, c := range controllers {
				if draw.IntN(2) == 0 {
					c.client.setCut(false)
				}
			}
		case 4:
			c.client.set(time.Duration(1+draw.IntN(300))*time.Millisecond, draw.Float64()*0.3, draw.Float64())
		case 5:
			if draw.IntN(2) == 0 {
				c.client.setCut(true) // it cannot say so
			}
			c.kill()
			<-c.ended
			controllers[i] = w.controller(i)
		case 6:
			die()
			alive, die = context.WithCancel(ctx)
			w.node(alive, "a", 3*time.Second)
		default:
			id := fmt.Sprint("job", len(jobs))
			jobs = append(jobs, id)
			w.submit(id)
			if draw.IntN(4) == 0 {
				w.store.put(cluster.CancelKey(id), []byte("x"))
			}
		}
	}
	die()
	for _, c := range controllers {
		c.client.set(2*time.Millisecond, 0, 0)
		c.client.setCut(false)
	}
	for _, id := range jobs {
		w.until(id+" ends", func() bool { return w.job(id).State.Ended() })
	}
	for _, c := range controllers {
		c.kill()
		<-c.ended
	}
	time.Sleep(10 * time.Second) // for what is late
}

// oneAtATime checks that nobody has begun to write as a leader before the last call of an earlier one had returned. It
// returns how many have written.
func oneAtATime(t *testing.T, calls []call) int {
	type span struct {
		term        uint64
		first, last time.Time
	}
	spans := map[uint64]*span{}
	for _, k := range calls {
		if k.term == 0 || !strings.HasPrefix(k.key, cluster.JobPrefix) {
			continue
		}
		s := spans[k.term]
		if s == nil {
			s = &span{term: k.term, first: k.began, last: k.left}
			spans[k.term] = s
		}
		if k.began.Before(s.first) {
			s.first = k.began
		}
		if k.left.After(s.last) {
			s.last = k.left
		}
	}
	var order []*span
	for _, s := range spans {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b *span) int { return cmp.Compare(a.term, b.term) })
	for i := 1; i < len(order); i++ {
		require.False(t, order[i].first.Before(order[i-1].last), "leader %d acts at %v, leader %d until %v", order[i].term, order[i].first, order[i-1].term, order[i-1].last)
	}
	return len(order)
}

// forward checks that terms grow in every record.
func forward(t *testing.T, log []cluster.Record) {
	terms := map[string]uint64{}
	for _, r := range log {
		if r.Value == nil {
			continue
		}
		term := termOf(r.Key, r.Value)
		require.GreaterOrEqual(t, term, terms[r.Key], "%s", r.Key)
		terms[r.Key] = term
	}
}

// register is a record with its revision as its value, 0 if there is none.
var register = porcupine.NondeterministicModel{
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, _ any) []any {
		now, k := state.(uint64), input.(call)
		next := k.revision
		if k.op == "delete" {
			next = 0
		}
		switch {
		case k.op == "get":
			if now == k.revision {
				return []any{now}
			}
		case k.outcome == "ok":
			if now == k.expected {
				return []any{next}
			}
		case k.outcome == "conflict":
			if now != k.expected {
				return []any{now}
			}
		default: // it may have been refused, or done
			if now == k.expected {
				return []any{now, next}
			}
			return []any{now}
		}
		return nil
	},
}

func linearizable(t *testing.T, calls []call) {
	byKey := map[string][]porcupine.Operation{}
	for i, k := range calls {
		if k.outcome != "never" {
			byKey[k.key] = append(byKey[k.key], porcupine.Operation{ClientId: i, Input: k, Call: k.began.UnixNano(), Return: k.ended.UnixNano()})
		}
	}
	model := register.ToModel()
	for key, history := range byKey {
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model, history, time.Minute), key)
	}
}
