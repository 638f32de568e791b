package remote

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/afstream/afstream/backup"
)

// stores are one on disk and the same behind a server.
var stores = map[string]func(b *testing.B) backup.Store{
	"local": func(b *testing.B) backup.Store { return openBadger(b, b.TempDir()) },
	"remote": func(b *testing.B) backup.Store {
		url := startNATS(b, nil)
		serve(b, connect(b, url), openBadger(b, b.TempDir()))
		return open(b, connect(b, url))
	},
}

// BenchmarkStores compares a store on disk with the same behind a server: commits per second with 16 under way.
func BenchmarkStores(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		for _, name := range []string{"local", "remote"} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				benchmarkApply(b, stores[name](b), min(size, backup.MaxBatchBytes-200))
			})
		}
	}
}

func benchmarkApply(b *testing.B, s backup.Store, size int) {
	const inFlight = 16
	free := make(chan *backup.Batch, inFlight)
	for i := range inFlight {
		free <- put("o", 1, fmt.Sprintf("some/usual/key/%02d", i), string(make([]byte, size)))
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

// BenchmarkScan reads 16 MiB.
func BenchmarkScan(b *testing.B) {
	url, store := startNATS(b, nil), openBadger(b, b.TempDir())
	for i := range 64 {
		if err := applyWait(store, put("o", 1, fmt.Sprintf("%03d", i), string(make([]byte, 256<<10)))); err != nil {
			b.Fatal(err)
		}
	}
	serve(b, connect(b, url), store)
	for name, s := range map[string]backup.Store{"local": store, "remote": open(b, connect(b, url))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				if err := s.Scan(nil, func(k, v []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPartition commits a whole state of 100 MB and recovers it, which reads it twice.
func BenchmarkPartition(b *testing.B) {
	key := backup.PartitionKey{Job: "job", Incarnation: "1", Operator: "count"}
	state := make([]byte, 100_000_000)
	for i := 0; i < len(state); i += 8 { // nothing that could be made smaller
		binary.LittleEndian.PutUint64(state[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	for name, open := range stores {
		s := open(b)
		epoch := uint64(0)
		load := func(b *testing.B) (*backup.Partition, *backup.Restored) {
			epoch++
			p := backup.OpenPartition(s, key, epoch)
			r, err := p.Load()
			if err != nil {
				b.Fatal(err)
			}
			return p, r
		}
		commit := func(b *testing.B, p *backup.Partition) {
			done := make(chan error, 1)
			p.Commit(&backup.Commit{Whole: true, Elements: state}, func(err error) { done <- err })
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		first, _ := load(b)
		commit(b, first)
		b.Run(name+"/commit", func(b *testing.B) {
			p, _ := load(b)
			b.SetBytes(int64(len(state)))
			for b.Loop() {
				commit(b, p)
			}
		})
		b.Run(name+"/recover", func(b *testing.B) {
			b.SetBytes(int64(len(state)))
			for b.Loop() {
				_, r := load(b)
				n := 0
				for {
					c, err := r.Chunks()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					n += len(c.Data)
				}
				if n != len(state) {
					b.Fatalf("%d bytes", n)
				}
			}
		})
	}
}
