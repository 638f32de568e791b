package link

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// peerEnv holds the address of the NATS server in the other process of a test in which there are two.
const peerEnv = "AFSTREAM_LINK_PEER"

var (
	benchFor   = flag.Duration("link.for", time.Duration(thorough.Number(150, 500))*time.Millisecond, "how long each part of TestTwoProcesses lasts")
	benchBatch = flag.Int("link.batch", 0, "Config.Batch of TestTwoProcesses; 0 is the default")
)

// figures are what the receiving process has seen in one part.
type figures struct {
	Items    uint64
	Elapsed  time.Duration // from the first item to the last
	P50, P99 time.Duration // from when an item was made to when its receiver had it
}

// TestTwoProcesses sends items of 24 bytes from this process, which also is the server, to another, as fast as it goes and
// then at half that rate, and prints figures. They mean something on an idle machine only (make bench-nats); what is tested
// is that each item arrives, once.
func TestTwoProcesses(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), peerEnv+"="+s.ClientURL())
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() {
		if t.Failed() {
			_ = child.Process.Kill() // it would wait for ever
		}
		err := child.Wait()
		require.True(t, t.Failed() || err == nil, "the other process: %v", err)
	}()

	bus := connect(t, s)
	park := ringbuf.NewParker()
	out, err := bus.Dial("full", park, Config{Batch: *benchBatch})
	require.NoError(t, err)
	sent := pump(t, out, park, 0)
	report := bufio.NewScanner(stdout)
	full := read(t, report)
	require.Equal(t, sent, full.Items)
	rate := float64(full.Items) / full.Elapsed.Seconds()
	t.Logf("full speed: %.1f M items/s, %.0f MB/s; p50 %v, p99 %v with full windows", rate/1e6, rate*24/1e6, full.P50, full.P99)
	out.Close()

	out, err = bus.Dial("half", park, Config{Batch: *benchBatch})
	require.NoError(t, err)
	sent = pump(t, out, park, rate/2)
	half := read(t, report)
	require.Equal(t, sent, half.Items)
	t.Logf("half load: %.1f M items/s; p50 %v, p99 %v", float64(half.Items)/half.Elapsed.Seconds()/1e6, half.P50, half.P99)
	t.Logf("sender: %+v", out.Stats())
}

func read(t *testing.T, from *bufio.Scanner) figures {
	t.Helper()
	require.True(t, from.Scan(), "the other process has ended")
	var f figures
	require.NoError(t, json.Unmarshal(from.Bytes(), &f), "%s", from.Text())
	return f
}

// paced is a source of records: as fast as they are taken, or so many per second in small bursts, for benchFor.
type paced struct {
	rate  float64
	begun time.Time
	made  uint64
	ended bool
}

// step is how often a paced source makes items: about as often as one that parses lines fills a slab.
const step = 100 * time.Microsecond

func (p *paced) Read(dst []record) (int, error) {
	now := time.Now()
	n := len(dst)
	for p.rate > 0 {
		due := uint64(now.Sub(p.begun).Truncate(step).Seconds() * p.rate)
		if n = int(min(due-min(due, p.made), uint64(len(dst)))); n > 0 {
			break
		}
		time.Sleep(step)
		now = time.Now()
	}
	at := now.UnixNano()
	for i := range dst[:n] {
		dst[i] = record{Key: p.made, At: at, Value: 1}
		p.made++
	}
	p.ended = now.Sub(p.begun) > *benchFor
	return n, nil
}

func (p *paced) Close() error { return nil }

// sending is the exit of a source: it numbers slabs and sends them.
type sending struct {
	out  *Outbound
	park *ringbuf.Parker
	next uint64
}

func (*sending) Hurry() {}

func (s *sending) Credit(int) int64        { return stream.Unlimited }
func (s *sending) AwaitCredit(int64) int64 { return stream.Unlimited }

func (s *sending) Send(_, _ int, slab stream.Slab) {
	s.frame(transport.Frame{First: s.next, Count: slab.Len(), Slab: slab})
}

func (s *sending) frame(f transport.Frame) {
	s.next = f.Next()
	s.park.Wait(func() bool {
		for _, ok := s.out.Acks(); ok; _, ok = s.out.Acks() {
		}
		return s.out.Send(f)
	})
}

// pump runs a source for a while and returns how many items it has sent.
func pump(t *testing.T, out *Outbound, park *ringbuf.Parker, rate float64) uint64 {
	t.Helper()
	top := stream.New("bench")
	src := &paced{rate: rate, begun: time.Now()}
	records := stream.From(top, "records", func(int, int) (stream.Source[record], error) { return src, nil })
	stream.To(records, "sink", func(int, int) (stream.Sink[record], error) { return nil, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	exit := &sending{out: out, park: park}
	task, err := nodes[0].NewSource(0, exit, nil)
	require.NoError(t, err)
	for !src.ended {
		_, err := task.Fill(stream.SlabItems)
		require.NoError(t, err)
	}
	task.Flush()
	items := exit.next
	exit.frame(transport.Frame{Kind: transport.Punctuation, First: items, Count: 1, Window: stream.Window{Number: 1, Last: true}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, out.Flush(ctx))
	return items
}

// runPeer is the receiving process.
func runPeer() int {
	if err := servePeer(os.Getenv(peerEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func servePeer(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	bus, err := NewBus(nc, "test.cluster-1")
	if err != nil {
		return err
	}
	defer bus.Close()
	var half *Inbound // listens early
	decode := edges(failing{})[0].Decoder()
	park := ringbuf.NewParker()
	open := func(id string) (*Inbound, error) {
		return bus.Listen(id, park, func(_ int, items []byte) (stream.Slab, error) { return decode(items) }, Config{})
	}
	full, err := open("full")
	if err != nil {
		return err
	}
	if half, err = open("half"); err != nil {
		return err
	}
	for _, in := range []*Inbound{full, half} {
		if err := json.NewEncoder(os.Stdout).Encode(drain(in, park)); err != nil {
			return err
		}
		in.Close() // which tells the sender that all has arrived
	}
	return nil
}

// drain receives until the stream ends, acknowledging as a worker does, and looks at the clock once per frame.
func drain(in *Inbound, park *ringbuf.Parker) figures {
	var took []time.Duration
	var first time.Time
	next := uint64(0)
	for {
		var f transport.Frame
		park.Wait(func() bool {
			var ok bool
			f, ok = in.Receive()
			return ok
		})
		if f.First != next {
			panic(fmt.Sprintf("item %d, want %d", f.First, next))
		}
		next = f.Next()
		if f.Kind == transport.Punctuation {
			break
		}
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		took = append(took, now.Sub(time.Unix(0, made(f.Slab))))
		f.Release()
		in.Acknowledge(transport.Ack{Acked: next}) // without room the next says it, too
	}
	elapsed := time.Since(first)
	slices.Sort(took)
	return figures{Items: next - 1, Elapsed: elapsed, P50: took[len(took)/2], P99: took[len(took)*99/100]}
}

// made is when the first item of a slab of records was made.
func made(s stream.Slab) int64 {
	var buf [64]byte
	wire, err := s.AppendItems(buf[:0], 0, 1)
	if err != nil {
		panic(err)
	}
	var at int64
	for i := 7; i >= 0; i-- { // the second field of the one item, little-endian, at the end
		at = at<<8 | int64(wire[len(wire)-16+i])
	}
	return at
}

// failing ends the process where a test would fail.
type failing struct{}

func (failing) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (failing) FailNow()                          { panic("failed") }
