package wordcount

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// benchText is 8 MB of text in blocks of about the default size; words have 3 to 12 letters, and a frequency that falls
// as in a language.
func benchText() (blocks []connector.Block, size int) {
	r := rand.New(rand.NewPCG(1, 0))
	zipf := rand.NewZipf(r, 1.05, 3, 200_000)
	words := make([]string, 200_001)
	for i := range words {
		var w strings.Builder
		for range 3 + r.IntN(10) {
			w.WriteByte(byte('a' + r.IntN(26)))
		}
		words[i] = w.String()
	}
	for size < 8<<20 {
		var b strings.Builder
		for b.Len() < DefaultBlockSize-14 {
			b.WriteString(words[zipf.Uint64()])
			b.WriteByte(' ')
		}
		blocks = append(blocks, connector.Block{Text: []byte(b.String())})
		size += b.Len()
	}
	return blocks, size
}

// BenchmarkByHand is what the others are measured against: a tight loop over ASCII letters and a Go map, looked up
// without an allocation.
func BenchmarkByHand(b *testing.B) {
	blocks, size := benchText()
	b.SetBytes(int64(size))
	b.ResetTimer()
	for range b.N {
		counts := map[string]*int64{}
		for _, block := range blocks {
			text := block.Text
			for i := 0; i < len(text); {
				for i < len(text) && !('a' <= text[i]|0x20 && text[i]|0x20 <= 'z') {
					i++
				}
				start := i
				for i < len(text) && 'a' <= text[i]|0x20 && text[i]|0x20 <= 'z' {
					i++
				}
				if i == start {
					continue
				}
				if n, ok := counts[string(text[start:i])]; ok {
					*n++
				} else {
					counts[string(text[start:i])] = new(int64)
				}
			}
		}
	}
}

// BenchmarkCount counts the same text, without and with the tracking and the partial backups that it asks for.
func BenchmarkCount(b *testing.B) {
	blocks, size := benchText()
	for _, boundaries := range []Boundaries{Unicode, Alnum} {
		for _, theta := range []float64{math.Inf(1), 2500} {
			b.Run(fmt.Sprintf("%s/theta=%v", boundaries, theta), func(b *testing.B) {
				b.SetBytes(int64(size))
				for range b.N {
					countBlocks(b, NewCount(Options{Boundaries: boundaries}), blocks, theta)
				}
			})
		}
	}
	b.Run("l1/theta=2500", func(b *testing.B) {
		b.SetBytes(int64(size))
		for range b.N {
			countBlocks(b, NewCount(Options{Norm: errorbound.L1}), blocks, 2500)
		}
	})
}

func countBlocks(b *testing.B, c *Count, blocks []connector.Block, theta float64) {
	c.SetTheta(theta)
	w := stream.NewStateWriter(nil, false)
	for i := range blocks {
		if err := c.Process(blocks[i], nil); err != nil {
			b.Fatal(err)
		}
		if d := c.StateDivergence(); d > theta*3/4 {
			w.Reset(false)
			if err := c.BackupState(w); err != nil {
				b.Fatal(err)
			}
			c.BackupDurable()
		}
	}
}

// TestCountDoesNotAllocate once all words are known, also not for words that have to be folded.
func TestCountDoesNotAllocate(t *testing.T) {
	c := NewCount(Options{Fold: true})
	c.SetTheta(2500)
	block := connector.Block{Text: []byte("The quick Brown fox, naïve É jumps over 漢字 3.14 times")}
	require.NoError(t, c.Process(block, nil))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.Process(block, nil); err != nil {
			t.Error(err)
		}
	}))
	tally := NewTally(Options{})
	items := []connector.Keyed{connector.MakeKeyed([]byte("word"), 1)}
	require.NoError(t, tally.ProcessBatch(items, nil))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := tally.ProcessBatch(items, nil); err != nil {
			t.Error(err)
		}
	}))
}
