package reservoir

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	for _, weight := range []func(*number) float64{nil, weighted} {
		s := NewSample(Options[number]{Size: 100, Weight: weight})
		numbers := upTo(4096)
		require.NoError(t, s.ProcessBatch(numbers, nil))
		require.Zero(t, testing.AllocsPerRun(10, func() {
			if err := s.ProcessBatch(numbers, nil); err != nil {
				t.Error(err)
			}
		}))
	}
}

// BenchmarkByHand is Algorithm R, which the others are measured against. One operation is one item.
func BenchmarkByHand(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 0))
	numbers := upTo(4096)
	sample := make([]number, 0, 1000)
	for n := range b.N {
		x := numbers[n&4095]
		if len(sample) < cap(sample) {
			sample = append(sample, x)
		} else if at := r.Uint64N(uint64(n + 1)); at < uint64(len(sample)) {
			sample[at] = x
		}
	}
}

func BenchmarkProcessBatch(b *testing.B) {
	numbers := upTo(4096)
	for name, weight := range map[string]func(*number) float64{"plain": nil, "weighted": weighted} {
		b.Run(name, func(b *testing.B) {
			s := NewSample(Options[number]{Size: 1000, Weight: weight})
			s.SetTheta(1000)
			for n := 0; n < b.N; n += 256 {
				at := n & 4095
				if err := s.ProcessBatch(numbers[at:at+256], nil); err != nil {
					b.Fatal(err)
				}
				if s.StateDivergence() > 750 {
					if err := s.BackupState(stream.NewStateWriter(nil, false)); err != nil {
						b.Fatal(err)
					}
					s.BackupDurable()
				}
			}
		})
	}
}
