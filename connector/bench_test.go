package connector

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// benchSource reads a replayable source over and over, into slabs of 256 items.
func benchSource(b *testing.B, factory stream.NewSource[Keyed], inputBytes int) {
	b.Helper()
	s, err := factory(0, 1)
	require.NoError(b, err)
	defer s.Close()
	dst := make([]Keyed, 256)
	items := 0
	b.SetBytes(int64(inputBytes))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, s.(stream.Replayable).Seek(stream.Position{}))
		for {
			n, err := s.Read(dst)
			items += n
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(items)/b.Elapsed().Seconds()/1e6, "Mitems/s")
}

func benchFile(b *testing.B, name string, content []byte, o KeyedOptions) {
	b.Helper()
	o.Path = writeFile(b, name, content)
	factory, err := OpenKeyed(o)
	require.NoError(b, err)
	benchSource(b, factory, len(content))
}

// benchRows makes n rows of a skewed key and a small weight.
func benchRows(n int, format string) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 99_999)
	var b bytes.Buffer
	for range n {
		fmt.Fprintf(&b, format, zipf.Uint64(), rng.IntN(1000))
	}
	return b.Bytes()
}

func BenchmarkText(b *testing.B) {
	b.Run("key", func(b *testing.B) { benchFile(b, "a.txt", benchRows(500_000, "k%[1]d\n"), KeyedOptions{}) })
	b.Run("key+weight", func(b *testing.B) { benchFile(b, "a.txt", benchRows(500_000, "k%d %d\n"), KeyedOptions{}) })
}

func BenchmarkCSV(b *testing.B) {
	content := append([]byte("date,key,weight,place\n"), benchRows(200_000, "2001-01-01,k%d,%d,here\n")...)
	benchFile(b, "a.csv", content, KeyedOptions{Key: "key", Weight: "weight"})
}

func BenchmarkJSONL(b *testing.B) {
	content := benchRows(100_000, `{"key":"k%d","n":%d,"more":[1,2]}`+"\n")
	benchFile(b, "a.jsonl", content, KeyedOptions{Key: "key", Weight: "n"})
}

func BenchmarkPcap(b *testing.B) {
	for _, key := range []string{"src", "flow"} {
		b.Run(key, func(b *testing.B) {
			factory, err := OpenKeyed(KeyedOptions{Path: "builtin:cip.pcap", Key: key, Weight: "bytes"})
			require.NoError(b, err)
			benchSource(b, factory, 3_392_686)
		})
	}
}

func BenchmarkFlights(b *testing.B) {
	factory, err := OpenKeyed(KeyedOptions{Path: "builtin:flights", Key: "origin"})
	require.NoError(b, err)
	benchSource(b, factory, 0)
}

func BenchmarkZipf(b *testing.B) {
	for _, o := range []ZipfOptions{
		{Items: 1 << 20, Keys: 10_000, S: 1.1},
		{Items: 1 << 20, Keys: 1_000_000, S: 1},
		{Items: 1 << 20, Keys: 1_000_000, S: 0},
	} {
		b.Run(fmt.Sprintf("keys=%d,s=%v", o.Keys, o.S), func(b *testing.B) {
			factory, err := Zipf(o)
			require.NoError(b, err)
			benchSource(b, factory, 0)
		})
	}
}
