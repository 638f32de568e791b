package stream

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/errorbound"
)

// kept is an operator with a state that nothing is known of.
type kept struct{}

func (kept) Process(v uint64, out *Emitter[uint64]) error { out.Emit(v); return nil }
func (kept) BackupState(*StateWriter) error               { return nil }

type added struct{ kept }

func (added) MergeState(*StateReader) error { return nil }

type keyedOp struct{ kept }

func (keyedOp) PartitionOf([]byte, int) int { return 0 }

// disjoint has keys of its own in each partition, and nothing to say which belongs where.
type disjoint struct{ added }

func (disjoint) Measure() Measure { return Measure{Combine: errorbound.Disjoint} }

type free struct{}

func (free) Process(v uint64, out *Emitter[uint64]) error { out.Emit(v); return nil }

func TestDivision(t *testing.T) {
	hash := HashUint64(func(v uint64) uint64 { return v })
	for name, c := range map[string]struct {
		op   any
		in   Option
		want Division
		err  string
	}{
		"no state":               {free{}, Shuffle(), Stateless, ""},
		"no state, broadcast":    {free{}, Broadcast(), Stateless, ""},
		"added":                  {added{}, Shuffle(), Merging, ""},
		"added, by key":          {added{}, hash, Merging, ""},
		"by key":                 {keyedOp{}, hash, ByKey, ""},
		"neither":                {kept{}, Shuffle(), 0, "stream.kept has neither MergeState"},
		"keys that are shuffled": {keyedOp{}, Shuffle(), 0, "items are not sent to them by key"},
		"disjoint":               {disjoint{}, hash, 0, "no PartitionOf"},
		"broadcast":              {added{}, Broadcast(), 0, `"source" broadcasts`},
		"forward":                {added{}, Forward(), 0, "forwarded"},
	} {
		topo := New("t")
		s := From(topo, "source", noSource[uint64])
		To(Then(s, "op", func() Operator[uint64, uint64] { return c.op.(Operator[uint64, uint64]) }, c.in), "sink", noSink[uint64])
		got, err := build(t, topo, "op").Division(c.op)
		if c.err == "" {
			require.NoError(t, err, name)
			require.Equal(t, c.want, got, name)
			continue
		}
		require.ErrorIs(t, err, ErrRescale, name)
		require.ErrorContains(t, err, c.err, name)
		require.ErrorContains(t, err, `operator "op"`, name)
	}
	topo := New("t")
	To(From(topo, "source", noSource[uint64]), "sink", noSink[uint64])
	for _, name := range []string{"source", "sink"} {
		_, err := build(t, topo, name).Division(nil)
		require.ErrorIs(t, err, ErrRescale)
	}
	To(Then(Then(From(topo, "other", noSource[uint64]), "op", func() free { return free{} }), "next", func() free { return free{} }, Forward()), "end", noSink[uint64])
	_, err := build(t, topo, "op").Division(free{})
	require.ErrorContains(t, err, `its output to "next" is forwarded`)
}

func TestResize(t *testing.T) {
	topo := New("t")
	s := Then(From(topo, "source", noSource[uint64], Workers(2)), "op", func() free { return free{} }, Forward(), Workers(2))
	To(Then(s, "more", func() free { return free{} }), "sink", noSink[uint64])
	op, more := build(t, topo, "op"), build(t, topo, "more")
	require.NoError(t, topo.Resize("more", 3))
	require.Equal(t, 3, more.Workers)
	for _, err := range []error{topo.Resize("op", 3), topo.Resize("more", 0), topo.Resize("nobody", 1)} {
		require.ErrorIs(t, err, ErrTopology)
	}
	require.Equal(t, 2, op.Workers, "an error leaves it as it was")
	require.Equal(t, 3, more.Workers)
}

// The helpers choose what the partitioners choose.
func TestPartitionOf(t *testing.T) {
	topo := New("t")
	s := From(topo, "source", noSource[uint64])
	To(s, "hash", noSink[uint64], Hash(func(v uint64) string { return fmt.Sprint(v) }))
	To(s, "number", noSink[uint64], HashUint64(func(v uint64) uint64 { return v }))
	pick := func(name string) func(uint64, int) int {
		return build(t, topo, name).Inputs[0].typed.(*edgeType[uint64]).pick
	}
	for v := range uint64(500) {
		for n := 1; n < 9; n++ {
			require.Equal(t, pick("hash")(v, n), PartitionOf(fmt.Sprint(v), n))
			require.Equal(t, pick("number")(v, n), PartitionOfUint64(v, n))
		}
	}
}

// Select passes on the elements that are wanted, whatever their number and size, and errors as they are.
func TestSelect(t *testing.T) {
	w := NewStateWriter(nil, true)
	for i := range uint64(50_000) {
		w.PutUint64(i, i)
	}
	w.Delete([]byte("gone"))
	b, odd := w.Bytes(), 0
	chunks := func() ([]byte, error) {
		if len(b) == 0 {
			return nil, io.EOF
		}
		n := min(len(b), 1000)
		c := b[:n]
		b = b[n:]
		return c, nil
	}
	r := Select(NewStateReader(chunks), func(key []byte) bool { return key[0]%2 == 1 })
	deleted := false
	for r.Next() {
		if r.Deleted() {
			deleted = true
			continue
		}
		i, v, err := r.Uint64()
		require.NoError(t, err)
		require.Equal(t, i, v)
		require.EqualValues(t, 2*odd+1, i)
		odd++
	}
	require.NoError(t, r.Err())
	require.Equal(t, 25_000, odd)
	require.True(t, deleted, "g is an odd letter")
	r = Select(NewStateReader(func() ([]byte, error) { return nil, errOdd }), func([]byte) bool { return true })
	require.False(t, r.Next())
	require.ErrorIs(t, r.Err(), errOdd)
}

// Skip drops what was emitted before.
func TestSkip(t *testing.T) {
	src := &scripted{answers: []answer{{n: 100}, {n: 200}, {n: 256}}}
	task, r := sourceTo(t, src, unlimited, output{Shuffle(), 1})
	require.NoError(t, task.Skip(0))
	require.NoError(t, task.Skip(300))
	n, err := task.Fill(SlabItems)
	require.NoError(t, err)
	require.Equal(t, 256, n)
	require.EqualValues(t, 300, r.items[channel{0, 0}][0])
	src.answers = []answer{{n: 3, err: io.EOF}}
	require.ErrorIs(t, task.Skip(4), io.ErrUnexpectedEOF)
	src.answers = []answer{{n: 1, err: errOdd}}
	require.ErrorIs(t, task.Skip(4), errOdd)
}
