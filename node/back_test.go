package node

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// TestLettersArrive: of values whose letters are lost, repeated and reordered, only whole ones are handed over, each once, and
// never an older one after a newer one.
func TestLettersArrive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type value struct {
			epoch, number uint64
			text          string
		}
		var sent []value
		var mail [][]byte
		for epoch := range uint64(2) {
			for number := range uint64(4) {
				v := value{epoch + 1, number + 1, string(rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(rt, "value"))}
				parts := rapid.IntRange(1, 3).Draw(rt, "parts")
				for part := range parts {
					l := letter{way: 2, from: 7, epoch: v.epoch, number: v.number, part: part, parts: parts,
						bytes: []byte(v.text[part*len(v.text)/parts : (part+1)*len(v.text)/parts])}
					mail = append(mail, l.encode())
				}
				sent = append(sent, v)
			}
		}
		delivered := rapid.SliceOfN(rapid.SampledFrom(mail), 0, 3*len(mail)).Draw(rt, "delivered")
		named := rapid.Uint64Range(0, 2).Draw(rt, "named")
		var box inbox
		var last value
		for _, msg := range delivered {
			l, err := decodeLetter(msg)
			require.NoError(rt, err)
			require.Equal(rt, [2]int{2, 7}, [2]int{l.way, l.from})
			text, complete := box.take(l, named)
			if !complete {
				continue
			}
			got := value{l.epoch, l.number, string(text)}
			require.Contains(rt, sent, got)
			require.GreaterOrEqual(rt, got.epoch, named)
			require.True(rt, got.epoch > last.epoch || got.epoch == last.epoch && got.number > last.number, "%v after %v", got, last)
			last = got
		}
	})
}

func TestLargeValuesAreCut(t *testing.T) {
	value := bytes.Repeat([]byte("0123456789"), letterBytes/4)
	all, err := letters(letter{from: 1, epoch: 1, number: 1}, value)
	require.NoError(t, err)
	require.Len(t, all, 3)
	var box inbox
	for i, msg := range all {
		l, err := decodeLetter(msg)
		require.NoError(t, err)
		got, complete := box.take(l, 1)
		require.Equal(t, i == 2, complete)
		if complete {
			require.True(t, bytes.Equal(value, got))
		}
	}
	_, err = letters(letter{}, make([]byte, maxLetters*letterBytes+1))
	require.ErrorContains(t, err, "at most")
	all, err = letters(letter{}, nil)
	require.NoError(t, err)
	require.Len(t, all, 1)
}

func FuzzDecodeLetter(f *testing.F) {
	l := letter{way: 1, from: 2, epoch: 3, number: 4, part: 0, parts: 2, bytes: []byte("value")}
	f.Add(l.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		l, err := decodeLetter(msg)
		if err != nil {
			return
		}
		again, err := decodeLetter(l.encode())
		require.NoError(t, err)
		require.Equal(t, l, again)
		var box inbox
		box.take(l, 0)
	})
}

// told is what a leader tells followers: how many items it has seen.
type told struct{ Seen uint64 }

// follower passes numbers on, and never more than ahead before what it was told.
type follower struct {
	relay
	sent, told uint64
}

const ahead = 500

func (f *follower) Process(in uint64, out *stream.Emitter[uint64]) error {
	f.sent++
	return f.relay.Process(in, out)
}

func (f *follower) Feedback(_ int, l told) error {
	f.told = max(f.told, l.Seen)
	return nil
}

func (f *follower) Pace() int { return int(f.told + ahead - min(f.told+ahead, f.sent)) }

// leader counts as tally does, and tells the followers.
type leader struct {
	*tally
	seen uint64
	back *stream.Feedback[told]
}

func (l *leader) SetFeedback(back *stream.Feedback[told]) {
	l.back = back
	l.back.Broadcast(told{l.seen})
}

func (l *leader) Process(in uint64, out *stream.Emitter[keyed]) error {
	if l.seen++; l.seen%100 == 0 {
		l.back.Broadcast(told{l.seen})
	}
	return l.tally.Process(in, out)
}

func (l *leader) RestoreState(r *stream.StateReader) error {
	err := l.tally.RestoreState(r)
	l.seen = 0
	for _, n := range l.counts {
		l.seen += n
	}
	return err
}

// led is a job with feedback: one source, two followers, one leader, one sink.
type led struct {
	n, stop uint64 // the source waits at number stop until gate opens
	gate    chan struct{}
	out     connector.Collector[keyed]
}

func (p *led) program() Program {
	return Program{Name: "led", Version: "1", Build: func(context.Context, []string) (*Blueprint, error) {
		t := stream.New("led")
		s := stream.From(t, "numbers", func(part, parts int) (stream.Source[uint64], error) {
			return &numbers{n: p.n, parts: uint64(parts), part: uint64(part), stop: p.stop, gate: p.gate, closed: make(chan struct{})}, nil
		})
		f := stream.Then(s, "follow", func() *follower { return &follower{} }, stream.Workers(2))
		l := stream.Then(f, "lead", func() *leader { return &leader{tally: &tally{counts: map[uint64]uint64{}}} }, stream.EmitOnClose())
		stream.To(l, "out", connector.Collect(&p.out))
		stream.FeedbackTo[told](l, f)
		return &Blueprint{Topology: t, Params: errorbound.Params{Theta: 100, L: 400, Gamma: 400}}, nil
	}}
}

func (p *led) spec() cluster.Spec {
	return cluster.Spec{Name: "led", Version: "1", Backups: []string{"store"}, Operators: []cluster.Operator{
		{Name: "numbers", Workers: 1, Compute: 1, Source: true},
		{Name: "follow", Workers: 2, Compute: 1},
		{Name: "lead", Workers: 1, Compute: 1},
		{Name: "out", Workers: 1, Compute: 1, Sink: true},
	}}
}

// fed returns how much feedback the followers have had, in their last incarnations.
func (l *lab) fed(sessions map[string]string) (values uint64) {
	for _, s := range sessions {
		for _, w := range l.last[s].Workers {
			values += w.Counters.Feedback
		}
	}
	return values
}

// TestFeedbackBetweenNodes reaches followers here and there, through the death of either side.
func TestFeedbackBetweenNodes(t *testing.T) {
	p := &led{n: 20_000, stop: 10_000, gate: make(chan struct{})}
	l := newLab(t, p.program()).withNATS()
	sessions := l.startAll("a", "b", "c")
	l.submit("j1", p.spec()) // a: numbers, lead; b: follow/0, out; c: follow/1
	l.drive("j1", sessions, func(*cluster.Job) bool {
		b := l.last[sessions["a"]]
		return b != nil && status(b, "lead", 0) != nil && status(b, "lead", 0).Counters.Items >= 3000
	})
	l.nodes["b"].crash() // a follower
	delete(sessions, "b")
	l.drive("j1", sessions, l.running(sessions))
	l.nodes["a"].crash() // the leader
	delete(sessions, "a")
	close(p.gate)
	j := l.drive("j1", sessions, never)
	require.Equal(t, cluster.Finished, j.State)
	require.NotZero(t, l.fed(sessions))
	total := uint64(0)
	for _, k := range p.out.Items() {
		total += k.Count
	}
	require.InDelta(t, float64(p.n), float64(total), 100+400+400+400)
}

// TestFirstValueWaitsForItsReceiver: what a leader says as it is loaded reaches a follower in another process that is loaded
// later, and one that takes its place.
func TestFirstValueWaitsForItsReceiver(t *testing.T) {
	p := &led{n: 1, gate: open()}
	l := newLab(t, p.program()).withNATS()
	sessions := l.startAll("a", "b")
	l.submit("j1", p.spec())
	l.update("j1", func(j *cluster.Job) { assign(j.Worker("lead", 0), "a", sessions["a"]) })
	l.await("a", func(b *cluster.Beat) bool {
		s := status(b, "lead", 0)
		return s != nil && s.Phase == cluster.Working
	})
	for range 2 {
		l.update("j1", func(j *cluster.Job) { assign(j.Worker("follow", 1), "b", sessions["b"]) })
		l.await("b", func(b *cluster.Beat) bool {
			s := status(b, "follow", 1)
			return s != nil && s.Counters.Feedback > 0
		})
	}
}

func TestWiresNeedABus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 1, gate: open(), guarantee: worker.None}
		l := newLab(t, p.program())
		l.start("a")
		session := l.session("a", "")
		l.submit("j1", p.spec())
		l.update("j1", func(j *cluster.Job) {
			assign(j.Worker("tally", 0), "a", session)
			assign(j.Worker("out", 0), "elsewhere", "other")
		})
		s := status(l.await("a", func(b *cluster.Beat) bool { s := status(b, "tally", 0); return s != nil && s.Phase == cluster.Broken }), "tally", 0)
		require.Contains(t, s.Error, errNoBus.Error())
	})
}
