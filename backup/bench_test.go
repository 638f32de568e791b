package backup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkApply(b *testing.B) {
	for _, c := range stores {
		for _, inFlight := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/inflight=%d", c.name, inFlight), func(b *testing.B) {
				s := c.open(b)
				defer s.Close()
				benchmarkApply(b, s, inFlight)
			})
		}
	}
	b.Run("badger-sync/inflight=16", func(b *testing.B) {
		s := openTestBadger(b, b.TempDir(), BadgerOptions{Sync: true})
		defer s.Close()
		benchmarkApply(b, s, 16)
	})
}

func benchmarkApply(b *testing.B, s Store, inFlight int) {
	free := make(chan *Batch, inFlight)
	for i := range inFlight {
		free <- batch("o", 1, fmt.Sprintf("some/usual/key/%02d=0123456789abcdef0123456789abcdef", i))
	}
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

func BenchmarkCommit(b *testing.B) {
	for _, c := range stores {
		b.Run(c.name, func(b *testing.B) {
			s := c.open(b)
			defer s.Close()
			p := OpenPartition(s, testKey, 1)
			_, err := p.Load()
			require.NoError(b, err)
			commit := &Commit{Elements: make([]byte, 64*16), Inputs: []Input{{Channel: 1}, {Channel: 2}}, Outputs: []uint64{1}}
			done := make(chan error, 1)
			finish := func(err error) { done <- err }
			b.ReportAllocs()
			for b.Loop() {
				commit.Inputs[0].Seq++
				commit.Whole = p.NeedWhole()
				p.Commit(commit, finish)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
