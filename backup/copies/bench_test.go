package copies

import (
	"fmt"
	"testing"

	"github.com/afstream/afstream/backup"
)

// BenchmarkCommits compares members on disk: batches of 16 owners, of which each has one under way, as partitions do. "direct" is the
// member alone.
func BenchmarkCommits(b *testing.B) {
	for _, size := range []int{200, 16 << 10} {
		for n := range 4 {
			name := fmt.Sprintf("copies=%d", n)
			if n == 0 {
				name = "direct"
			}
			b.Run(fmt.Sprintf("bytes=%d/%s", size, name), func(b *testing.B) {
				if n == 0 {
					benchmarkCommits(b, openBadger(b), size)
					return
				}
				s := New(openMembers(b, n, openBadger), Options{})
				benchmarkCommits(b, s, size)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func benchmarkCommits(b *testing.B, s backup.Store, size int) {
	const inFlight = 16
	free := make(chan *backup.Batch, inFlight)
	for i := range inFlight {
		key := backup.PartitionKey{Job: "j", Incarnation: "i", Operator: "o", Partition: i}
		x := &backup.Batch{Owner: key.Owner(), Epoch: 1}
		x.Puts = []backup.Entry{{Key: []byte(prefixOf(x.Owner) + "a usual key"), Value: make([]byte, size)}}
		if err := s.Fence(x.Owner, 1); err != nil {
			b.Fatal(err)
		}
		free <- x
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		x := <-free
		s.Apply(x, func(err error) {
			if err != nil {
				panic(err)
			}
			free <- x
		})
	}
	for range inFlight {
		<-free
	}
}

// BenchmarkFence is the part of taking over that does not depend on the size of the state, as long as the members are equal.
func BenchmarkFence(b *testing.B) {
	for n := 1; n <= 2; n++ {
		b.Run(fmt.Sprintf("copies=%d", n), func(b *testing.B) {
			s := New(openMembers(b, n, openBadger), Options{})
			epoch := uint64(0)
			for b.Loop() {
				epoch++
				if err := s.Fence(owner, epoch); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
