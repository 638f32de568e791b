package controller_test

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// largest keeps the largest number of its partition, and at the end that of all partitions of its worker in the first.
type largest struct {
	state.Value[int64]
	peers *stream.Peers[int64]
}

func (l *largest) SetPeers(peers *stream.Peers[int64]) { l.peers = peers }

func (l *largest) Process(n int64, _ *stream.Emitter[int64]) error {
	l.Set(max(l.Value.Value(), n))
	return nil
}

func (l *largest) Receive(_ int, n int64) error {
	l.Set(max(l.Value.Value(), n))
	return nil
}

// Finish may be called again, when Hand had no room or after a failure: to take a maximum twice does no harm.
func (l *largest) Finish(stream.Window) (bool, error) {
	return l.peers.Self() == 0 || l.peers.Hand(0, l.Value.Value()), nil
}

func (l *largest) CloseWindow(_ stream.Window, out *stream.Emitter[int64]) error {
	if l.peers.Self() == 0 {
		out.Emit(l.Value.Value())
	}
	return nil
}

// Four partitions share the work, and one of them has the answer: when a window is closed, all that peers have handed over
// before their inputs ended it is there.
func ExampleRunLocal_peers() {
	numbers := make([]int64, 10_000)
	for i := range numbers {
		numbers[i] = int64(i * 7919 % 10_007)
	}
	t := stream.New("largest")
	source := stream.From(t, "numbers", connector.Slice(numbers))
	found := stream.Then(source, "largest", func() *largest { return &largest{} },
		stream.Compute(4), stream.EmitOnClose(), stream.Colleagues[int64]())
	var out connector.Collector[int64]
	stream.To(found, "out", connector.Collect(&out))

	var o controller.Options
	o.Theta, o.L, o.Gamma = 10_000, 100, 100
	result, err := controller.RunLocal(context.Background(), t, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d values handed over, largest number %v\n", result.Operators[1].Handed, out.Items())
	// Output: 3 values handed over, largest number [10006]
}
