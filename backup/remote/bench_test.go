package remote

import (
	"fmt"
	"testing"

	"github.com/afstream/afstream/backup"
)

// BenchmarkStores compares a store on disk with the same behind a server: commits per second with 16 under way.
func BenchmarkStores(b *testing.B) {
	stores := map[string]func(b *testing.B) backup.Store{
		"local": func(b *testing.B) backup.Store { return openBadger(b, b.TempDir()) },
		"remote": func(b *testing.B) backup.Store {
			url := startNATS(b, nil)
			serve(b, connect(b, url), openBadger(b, b.TempDir()))
			return open(b, connect(b, url))
		},
	}
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
