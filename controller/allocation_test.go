package controller_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// skewed sends nearly all items to the first partitions.
func skewed() stream.Option {
	return stream.HashUint64(func(v uint64) uint64 {
		if v%64 != 0 {
			return 0
		}
		return v / 64
	})
}

func TestX(t *testing.T) {
	l := newLedger()
	topo := stream.New("skewed")
	n := uint64(30000)
	s := stream.From(topo, "source", newNumbers(n))
	newIDs := func() *ids { return &ids{l: l, has: map[uint64]bool{}, last: map[uint64]uint64{}, parts: 1} }
	var out gather[uint64]
	kept := stream.Then(s, "ids", newIDs, skewed(), stream.EmitOnClose(), stream.Workers(4))
	stream.To(kept, "out", out.final)
	o := options(400, 0, 0)
	o.Allocate = controller.ByCost
	o.Hasty()
	o.Faults = []controller.Fault{{Operator: "ids", Worker: 0, Share: 0.5}, {Operator: "ids", Worker: 1, Share: 0.7}}
	r, err := controller.RunLocal(context.Background(), topo, o)
	require.NoError(t, err)
	t.Logf("%+v", r)
	_, _, _, _, _, _ = fmt.Print, rapid.Check, backup.LoadGrants, errorbound.L1, worker.None, n
}
