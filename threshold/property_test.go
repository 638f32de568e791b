package threshold_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/afstream/afstream/threshold"
)

// A Receiver against a list of items, with random events. Whatever the order, no more than l acked items are at risk,
// no unlogged punctuation is acked, and once everything is logged everything is acked.
func TestReceiverProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.Uint64Range(0, 5).Draw(t, "l")
		m := receiverModel{l: l, flushes: rapid.Bool().Draw(t, "flushes")}
		r := threshold.NewReceiver(l)
		if m.flushes {
			r = threshold.NewSinkReceiver(l)
		}
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(t *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(t, "n")
				r.Receive(uint64(n))
				m.items = append(m.items, make([]modelItem, n)...)
			},
			"punctuation": func(*rapid.T) {
				r.ReceivePunctuation()
				m.items = append(m.items, modelItem{punctuation: true})
			},
			"process": func(t *rapid.T) {
				most := min(r.Gate(), r.Received())
				if most <= r.Done() {
					t.Skip("gated")
				}
				to := rapid.Uint64Range(r.Done()+1, most).Draw(t, "to")
				for i := range m.items[:to] {
					m.items[i].processed = true
				}
				r.Processed(to)
			},
			"commit": func(*rapid.T) {
				for i := range m.items[:r.Done()] {
					m.items[i].logged = true
				}
				r.Logged(r.Done())
			},
			"log": func(*rapid.T) {
				from, to := r.Pending()
				for i := from; i < to; i++ {
					m.items[i].logged = true
				}
				r.Logged(to)
			},
			"log late": func(t *rapid.T) { // more arrives while the log is being written
				from, to := r.Pending()
				n := rapid.IntRange(0, 2).Draw(t, "n")
				for range n {
					r.ReceivePunctuation()
					m.items = append(m.items, modelItem{punctuation: true})
				}
				for i := from; i < to; i++ {
					m.items[i].logged = true
				}
				r.Logged(to)
			},
			"ack": func(t *rapid.T) { m.ack(t, r) },
			"":    func(t *rapid.T) { m.check(t, r) },
		})
		from, to := r.Pending()
		for i := from; i < to; i++ {
			m.items[i].logged = true
		}
		r.Logged(to)
		m.ack(t, r)
		m.check(t, r)
		if r.Acked() != r.Received() {
			t.Fatalf("%d of %d acked though all is logged: %+v", r.Acked(), r.Received(), r)
		}
	})
}

type modelItem struct{ punctuation, processed, logged, acked bool }

type receiverModel struct {
	l       uint64
	flushes bool // what is processed is safe only when it is logged
	items   []modelItem
}

func (m *receiverModel) ack(t *rapid.T, r *threshold.Receiver) {
	before := r.Acked()
	to := r.Ack()
	if to < before || to != r.Acked() {
		t.Fatalf("ack went from %d to %d, Acked is %d", before, to, r.Acked())
	}
	for i := range m.items[:to] {
		m.items[i].acked = true
	}
}

func (m *receiverModel) check(t *rapid.T, r *threshold.Receiver) {
	if err := r.Valid(); err != nil {
		t.Fatal(err)
	}
	var risk, ahead uint64
	for i, it := range m.items {
		if it.acked && !(it.processed && !m.flushes) && !it.logged {
			risk++
		}
		if it.processed && !it.acked {
			ahead++
		}
		if it.punctuation && it.acked && !it.logged {
			t.Fatalf("punctuation %d is acked and not logged", i+1)
		}
	}
	if risk != r.AtRisk() || risk > m.l {
		t.Fatalf("%d items at risk, AtRisk says %d, l is %d", risk, r.AtRisk(), m.l)
	}
	if ahead > m.l {
		t.Fatalf("%d items processed ahead of their ack, l is %d", ahead, m.l)
	}
}

// No receiver waits for ever: with acks taken at once and the log written when MustLog, the next item is always
// processed, l = 0 included.
func TestReceiverAlwaysMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := threshold.NewReceiver(rapid.Uint64Range(0, 3).Draw(t, "l"))
		for _, punctuation := range rapid.SliceOf(rapid.Bool()).Draw(t, "punctuation") {
			if punctuation {
				r.ReceivePunctuation()
			} else {
				r.Receive(1)
			}
			if rapid.Bool().Draw(t, "more") {
				continue
			}
			for r.Done() < r.Received() {
				r.Ack()
				if r.MustLog() {
					_, to := r.Pending()
					r.Logged(to)
					r.Ack()
				}
				if r.Gate() <= r.Done() {
					t.Fatalf("stuck: %+v", r)
				}
				r.Processed(r.Done() + 1)
			}
		}
	})
}

// A Sender never has more than its window under way, and always gets credit back.
func TestSenderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gamma := rapid.Uint64Range(0, 6).Draw(t, "gamma")
		s := threshold.NewSender(gamma)
		var emitted, acked uint64
		t.Repeat(map[string]func(*rapid.T){
			"emit": func(t *rapid.T) {
				n := rapid.Uint64Range(0, s.Credit()).Draw(t, "n")
				s.Emitted(n)
				emitted += n
			},
			"ack": func(t *rapid.T) {
				total := rapid.Uint64Range(0, emitted).Draw(t, "total") // an old one too
				s.Acked(total)
				acked = max(acked, total)
			},
			"": func(t *rapid.T) {
				if err := s.Valid(); err != nil {
					t.Fatal(err)
				}
				if s.Unacked() != emitted-acked || s.Unacked()+s.Credit() != max(gamma, 1) {
					t.Fatalf("%d under way, credit %d, gamma %d", s.Unacked(), s.Credit(), gamma)
				}
			},
		})
		s.Acked(emitted)
		if s.Credit() == 0 {
			t.Fatal("all is acked and there is no credit")
		}
	})
}

// Marks never let more than a window of items be processed above the last durable mark, and never stall.
func TestMarksProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.Uint64Range(0, 6).Draw(t, "l")
		m := threshold.NewMarks(l)
		var processed, flying, durable uint64
		inFlight := false
		t.Repeat(map[string]func(*rapid.T){
			"process": func(t *rapid.T) {
				if m.Gate() <= processed {
					if !m.Due() {
						t.Fatalf("gated with no mark due: %+v", m)
					}
					t.Skip("gated")
				}
				processed = rapid.Uint64Range(processed+1, m.Gate()).Draw(t, "to")
				m.Processed(processed)
			},
			"start": func(t *rapid.T) {
				if inFlight || !m.Due() {
					t.Skip("not due or not free")
				}
				inFlight, flying = true, processed
			},
			"durable": func(t *rapid.T) {
				if !inFlight {
					t.Skip("none in flight")
				}
				inFlight, durable = false, flying
				m.Committed(flying)
			},
			"": func(t *rapid.T) {
				if err := m.Valid(); err != nil {
					t.Fatal(err)
				}
				if processed-durable > max(l, 1) {
					t.Fatalf("%d items above the mark, l is %d", processed-durable, l)
				}
			},
		})
	})
}

// A Backup in the loop its documentation asks for, over states of both kinds, with partial and failed backups, any
// item sizes, and an alpha that may be wrong. What counts is never more than theta from what is durable, and every
// item gets to count.
func TestBackupProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := backupLoop{
			theta: rapid.SampledFrom([]float64{0, 1, 4, 10, math.Inf(1)}).Draw(t, "theta"),
			self:  rapid.Bool().Draw(t, "self"),
		}
		if l.alpha = rapid.SampledFrom([]float64{0, 1, 3, 50, -1, math.NaN()}).Draw(t, "alpha"); l.alpha != l.alpha {
			l.alpha = 0 // as unknown as that
		}
		l.b = threshold.NewBackup(threshold.BackupConfig{
			Theta: l.theta, Alpha: l.alpha,
			SelfAccounting: l.self, Begin: rapid.SampledFrom([]float64{0, 0.1, 0.9, 1, 7}).Draw(t, "begin"),
		})
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			l.round(t)
			if !l.b.InFlight() && rapid.IntRange(0, 3).Draw(t, "share") == 0 {
				l.another(t, rapid.SampledFrom([]float64{0, 1, 4, 10, math.Inf(1)}).Draw(t, "other theta"))
			}
		}
	})
}

// backupLoop keeps a one-element state whose divergence is the length of its path.
type backupLoop struct {
	b       *threshold.Backup
	theta   float64
	alpha   float64
	self    bool
	path    float64 // since the last durable backup
	since   float64 // since the last snapshot
	covered float64 // by the snapshot in flight
	broken  bool    // the state reads NaN until a backup begins
}

func (l *backupLoop) reading() float64 {
	switch {
	case l.broken:
		return math.NaN()
	case l.self:
		return l.path
	}
	return l.since
}

func (l *backupLoop) begin(t *rapid.T) {
	before := l.reading()
	if l.b.InFlight() {
		t.Fatal("a second backup would be in flight")
	}
	l.covered, l.since, l.broken = l.path, 0, false
	l.b.Started(before, l.reading())
	if math.IsNaN(before) && !l.self {
		l.land(t) // a NaN in flight counts as exceeded until it lands
	}
}

func (l *backupLoop) land(*rapid.T) {
	l.path -= l.covered
	l.covered = 0
	l.b.Durable(l.reading())
}

// settle begins backups and lets them become durable until Run or Decide lets the caller go on.
func (l *backupLoop) settle(t *rapid.T, goesOn func() bool) {
	for i := 0; !goesOn(); i++ {
		if i > 5 {
			t.Fatalf("no progress: %+v", l)
		}
		if !l.b.InFlight() {
			l.begin(t)
		}
		if l.b.InFlight() {
			l.land(t)
		}
	}
}

func (l *backupLoop) round(t *rapid.T) {
	n := 0
	l.settle(t, func() bool {
		n = l.b.Run(l.reading(), 3)
		if n == 0 && !l.b.InFlight() && !l.b.Pays(l.reading()) {
			t.Fatalf("Run waits for a backup that would leave out the elements: %+v", l)
		}
		return n > 0
	})
	most, stepping := l.b.Until(l.reading())
	if stepping && !(l.reading() <= most) {
		t.Fatalf("Until lets items in up to %v at %v", most, l.reading())
	}
	if stepping = stepping && rapid.Bool().Draw(t, "stepping"); stepping {
		n = 4
	}
	for i := range n {
		if stepping && i > 0 {
			if !(l.reading() <= most) {
				break
			}
			if l.b.Decide(l.reading()) != threshold.Continue || l.path+max(l.alpha, 0) > l.theta {
				t.Fatalf("Until lets an item in up to %v, although something is due or another is too much: %+v", most, l)
			}
		}
		change := rapid.SampledFrom([]float64{0, 0.5, 1, 3, 20}).Draw(t, "change")
		l.path += change
		l.since += change
	}
	l.broken = l.broken || rapid.IntRange(0, 19).Draw(t, "NaN") == 0
	l.obey(t)
	if l.path > l.theta {
		t.Fatalf("items count at a divergence of %v, theta is %v", l.path, l.theta)
	}
	if l.b.InFlight() {
		switch rapid.IntRange(0, 3).Draw(t, "write") {
		case 0:
			l.land(t)
		case 1:
			l.fail()
		}
	}
}

// obey does what Decide says until it no longer says Wait.
func (l *backupLoop) obey(t *rapid.T) {
	l.settle(t, func() bool {
		a := l.b.Decide(l.reading())
		if a == threshold.Start {
			l.begin(t)
		}
		return a != threshold.Wait
	})
}

// another changes theta: once Decide no longer says Wait the new one holds.
func (l *backupLoop) another(t *rapid.T, theta float64) {
	l.theta = theta
	l.b.SetTheta(theta)
	l.obey(t)
	if l.b.Theta() != theta || l.path > theta {
		t.Fatalf("theta is %v, the divergence %v", l.b.Theta(), l.path)
	}
}

// fail loses the backup in flight: the next one saves all, as a one-element state always does.
func (l *backupLoop) fail() {
	l.covered = 0
	l.b.Failed()
}
