package stream

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// sheet is what clerks hand over: a struct, so that a hidden conversion to an interface would allocate.
type sheet struct {
	From, N int
	More    [4]uint64
}

// clerk notes what it receives.
type clerk struct {
	peers *Peers[sheet]
	got   []sheet
	err   error
}

func (c *clerk) SetPeers(p *Peers[sheet])         { c.peers = p }
func (c *clerk) Process(int, *Emitter[int]) error { return nil }
func (c *clerk) Receive(from int, s sheet) error {
	if c.got != nil {
		c.got = append(c.got, s)
	}
	return c.err
}

// office is the runtime of some clerks, with a credit for each.
type office struct {
	credit, asked uint64
	woken         []int
}

func (o *office) Credit() uint64 {
	o.asked++
	n := o.credit
	o.credit = 0
	return n
}
func (o *office) Gave(to int) {
	if o.woken != nil {
		o.woken = append(o.woken, to)
	}
}

func openOffice(t testing.TB, n int, credit uint64) ([]*clerk, []*office, []Desk) {
	var clerks []*clerk
	var offices []*office
	var desks []Desk
	for i := range n {
		c, o := &clerk{got: []sheet{}}, &office{credit: credit, woken: []int{}}
		d, err := openDesk[sheet](c, i, n, o)
		require.NoError(t, err)
		clerks, offices, desks = append(clerks, c), append(offices, o), append(desks, d)
	}
	for _, d := range desks {
		d.Seat(desks)
	}
	return clerks, offices, desks
}

// Values and ends arrive in order, at the peer that they were meant for and from the one that gave them.
func TestHandArrivesInOrder(t *testing.T) {
	clerks, offices, desks := openOffice(t, 3, 100)
	require.Equal(t, 3, clerks[1].peers.Len())
	require.Equal(t, 1, clerks[1].peers.Self())
	for i := range 4 {
		require.True(t, clerks[0].peers.Hand(2, sheet{From: 0, N: i}))
		require.True(t, clerks[1].peers.Hand(2, sheet{From: 1, N: i}))
	}
	require.True(t, desks[0].End(2, 7))
	require.EqualValues(t, 4, desks[0].Handed(2))
	require.Zero(t, desks[0].Handed(1))
	require.Equal(t, []int{2, 2, 2, 2}, offices[0].woken)
	require.EqualValues(t, 1, offices[0].asked, "granted once for all")

	require.Zero(t, desks[1].Waiting(0))
	require.Zero(t, desks[2].Waiting(2), "of itself")
	require.Equal(t, 5, desks[2].Waiting(0))
	for range 4 {
		end, err := desks[2].Take(0, false)
		require.NoError(t, err)
		require.Zero(t, end)
	}
	end, err := desks[2].Take(0, false)
	require.NoError(t, err)
	require.EqualValues(t, 7, end)
	require.Equal(t, []sheet{{N: 0}, {N: 1}, {N: 2}, {N: 3}}, clerks[2].got)

	_, err = desks[2].Take(1, true)
	require.NoError(t, err)
	require.Len(t, clerks[2].got, 4, "dropped")
	clerks[2].err = errors.New("no more")
	_, err = desks[2].Take(1, false)
	require.ErrorIs(t, err, clerks[2].err)
}

// Hand refuses without credit and without room, and changes nothing then.
func TestHandRefuses(t *testing.T) {
	clerks, offices, desks := openOffice(t, 2, 3)
	give := func() bool { return clerks[0].peers.Hand(1, sheet{}) }
	for range 3 {
		require.True(t, give())
	}
	require.False(t, give())
	require.EqualValues(t, 3, desks[0].Handed(1))

	offices[0].credit = 1 << 20
	for range PeerRoom - 3 {
		require.True(t, give())
	}
	require.False(t, give(), "the ring is full")
	require.False(t, desks[0].End(1, 1))
	require.EqualValues(t, PeerRoom, desks[0].Handed(1))
	require.Equal(t, PeerRoom, desks[1].Waiting(0))

	_, err := desks[1].Take(0, false)
	require.NoError(t, err)
	require.True(t, give())
	_, err = desks[1].Take(0, false)
	require.NoError(t, err)
	desks[0].Revoke()
	require.False(t, give(), "what was granted is taken back")
}

func TestHandToNoPeer(t *testing.T) {
	clerks, _, _ := openOffice(t, 2, 3)
	for _, to := range []int{0, -1, 2} {
		require.PanicsWithError(t, map[int]string{
			0:  "stream: partition 0 of a worker of 2 handed a value to 0: not one of its peers",
			-1: "stream: partition 0 of a worker of 2 handed a value to -1: not one of its peers",
			2:  "stream: partition 0 of a worker of 2 handed a value to 2: not one of its peers",
		}[to], func() { clerks[0].peers.Hand(to, sheet{}) })
	}
}

// Nothing is allocated for a value, from Hand to Receive.
func TestHandAllocatesNothing(t *testing.T) {
	clerks, offices, desks := openOffice(t, 2, 0)
	clerks[1].got, offices[0].woken = nil, nil
	allocs := testing.AllocsPerRun(1000, func() {
		offices[0].credit = 1
		if !clerks[0].peers.Hand(1, sheet{N: 1}) {
			t.Error("refused")
		}
		if _, err := desks[1].Take(0, false); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
}

// outsider has nothing to do with peers.
type outsider struct{}

func (outsider) Process(int, *Emitter[int]) error { return nil }

func TestColleaguesThatAreNone(t *testing.T) {
	build := func(add func(s Stream[int]) Stream[int]) error {
		topo := New("t")
		To(add(From(topo, "source", nothing)), "sink", nowhere)
		_, err := topo.Build()
		return err
	}
	then := func(newOperator func() *clerk, opts ...Option) error {
		return build(func(s Stream[int]) Stream[int] { return Then(s, "op", newOperator, opts...) })
	}
	newClerk := func() *clerk { return &clerk{} }
	require.NoError(t, then(newClerk, Colleagues[sheet]()))
	require.ErrorContains(t, then(newClerk), "has SetPeers and is built without stream.Colleagues")
	require.ErrorContains(t, then(newClerk, Colleagues[int]()), "does not implement stream.Colleague[int]")
	require.ErrorContains(t, build(func(s Stream[int]) Stream[int] {
		return Then(s, "op", func() outsider { return outsider{} }, Colleagues[sheet]())
	}), "stream.outsider does not implement stream.Colleague")

	topo := New("t")
	To(From(topo, "source", nothing, Colleagues[int]()), "sink", nowhere, Colleagues[int]())
	_, err := topo.Build()
	require.ErrorContains(t, err, `operator "source": Colleagues are not for sources and sinks`)
	require.ErrorContains(t, err, `operator "sink": Colleagues are not for sources and sinks`)

	_, err = openDesk[int](outsider{}, 0, 1, &office{})
	require.ErrorContains(t, err, "stream.outsider hands over no values of type int")
}

func nothing(int, int) (Source[int], error) { return nil, errors.New("not opened") }
func nowhere(int, int) (Sink[int], error)   { return nil, errors.New("not opened") }

// BenchmarkHand is the way of one value to a peer that is awake.
func BenchmarkHand(b *testing.B) {
	clerks, offices, desks := openOffice(b, 2, 0)
	clerks[1].got, offices[0].woken = nil, nil
	offices[0].credit = 1 << 62
	b.ReportAllocs()
	for b.Loop() {
		clerks[0].peers.Hand(1, sheet{})
		if _, err := desks[1].Take(0, false); err != nil {
			b.Fatal(err)
		}
	}
}
