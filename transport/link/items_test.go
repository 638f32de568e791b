package link

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// record is an item of 24 bytes.
type record struct {
	Key   uint64
	At    int64 // when it was made, in nanoseconds
	Value float64
}

// edges returns two edges: of records, which travel in bulk, and of strings, one by one.
func edges(t require.TestingT) []*stream.Edge {
	top := stream.New("link")
	records := stream.From(top, "records", func(int, int) (stream.Source[record], error) { return nil, nil })
	words := stream.From(top, "words", func(int, int) (stream.Source[string], error) { return nil, nil })
	stream.To(records, "to-records", func(int, int) (stream.Sink[record], error) { return nil, nil })
	stream.To(words, "to-words", func(int, int) (stream.Sink[string], error) { return nil, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	all := make([]*stream.Edge, 2)
	for _, n := range nodes {
		switch n.Name {
		case "to-records":
			all[0] = n.Inputs[0]
		case "to-words":
			all[1] = n.Inputs[0]
		}
	}
	return all
}

// decoder reads slabs of edges.
func decoder(edges []*stream.Edge) transport.Decode {
	return func(edge int, items []byte) (stream.Slab, error) {
		if edge >= len(edges) {
			return nil, fmt.Errorf("%w: no edge %d", transport.ErrWire, edge)
		}
		return edges[edge].Decode(items)
	}
}

// words makes a slab of strings of the given lengths.
func words(t require.TestingT, e *stream.Edge, sizes ...int) stream.Slab {
	var wire []byte
	for i, n := range sizes {
		item := append([]byte{0xdb}, binary.BigEndian.AppendUint32(nil, uint32(n))...) // a msgpack string
		item = append(item, bytes.Repeat([]byte{byte('a' + i%26)}, n)...)
		wire = append(binary.LittleEndian.AppendUint32(wire, uint32(len(item))), item...)
	}
	s, err := e.Decode(wire)
	require.NoError(t, err)
	return s
}

func items(t require.TestingT, s stream.Slab, from, to int) []byte {
	wire, err := s.AppendItems(nil, from, to)
	require.NoError(t, err)
	return wire
}
