package connector

import (
	"bytes"
	"math"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

func TestParquet(t *testing.T) {
	path := writeFile(t, "a.parquet", parquetFile(t, 300))
	for _, c := range []struct {
		key, weight string
		want        []pair // of the first three rows
	}{
		{"key", "w", []pair{{"key0", 0.5}, {"key1", 1.5}, {"key2", 2.5}}},
		{"i", "", []pair{{"-3", 1}, {"-2", 1}, {"-1", 1}}},
		{"b", "f", []pair{{"true", 0}, {"false", 0.25}, {"true", 0.5}}},
		{"w", "f", []pair{{"0.5", 0}, {"1.5", 0.25}, {"2.5", 0.5}}},
	} {
		s := open(t, KeyedOptions{Path: path, Key: c.key, Weight: c.weight})
		dst := make([]Keyed, 3)
		n, err := s.Read(dst)
		require.NoError(t, err)
		require.Equal(t, c.want, pairs(dst[:n]))
	}
	for key, want := range map[string]string{
		"":     "no key column given: there are",
		"kye":  `unknown key column "kye": did you mean "key"? there are key, w, i, b, f, list`,
		"list": `key column "list": is nested or repeated`,
	} {
		_, err := OpenKeyed(KeyedOptions{Path: path, Key: key})
		require.ErrorContains(t, err, want)
	}
}

func TestParquetBadRows(t *testing.T) {
	path := writeFile(t, "a.parquet", parquetFile(t, 300))
	items, err := drain(open(t, KeyedOptions{Path: path, Key: "key", Weight: "w"}), 100)
	require.ErrorContains(t, err, "row 6: key is missing")
	require.Len(t, items, 5)
	s := open(t, KeyedOptions{Path: path, Key: "key", Weight: "w", OnBad: SkipBad})
	items, err = drain(s, 100)
	require.NoError(t, err)
	skipped := s.(Skipper).Skipped()
	require.EqualValues(t, 3*300/13, skipped) // 5, 7 and 8 of every 13
	require.Len(t, items, 300-int(skipped))
}

func TestParquetWeights(t *testing.T) {
	for v, want := range map[parquet.Value]float64{
		parquet.Int32Value(3):                     3,
		parquet.Int64Value(1 << 40):               1 << 40,
		parquet.FloatValue(0.5):                   0.5,
		parquet.DoubleValue(math.Copysign(0, -1)): 0,
		parquet.DoubleValue(math.MaxFloat64):      math.MaxFloat64,
		parquet.NullValue():                       -1,
		parquet.BooleanValue(true):                -1,
		parquet.Int64Value(-1):                    -1,
		parquet.FloatValue(float32(math.Inf(1))):  -1,
		parquet.DoubleValue(math.NaN()):           -1,
	} {
		got, err := weightOf(v)
		if want < 0 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, math.Float64bits(want), math.Float64bits(got))
	}
}

// TestDamagedParquet flips every bit of a small file's bytes: an error or fewer items,
// never a panic.
func TestDamagedParquet(t *testing.T) {
	content := parquetFile(t, 20)
	step := thorough.Number(5, 1)
	for i := 0; i < len(content); i += step {
		damaged := bytes.Clone(content)
		damaged[i] ^= 0xff
		o := KeyedOptions{Reader: bytes.NewReader(damaged), Format: FormatParquet, Key: "key", Weight: "w", OnBad: SkipBad}
		items, _ := drain(open(t, o), 10)
		require.LessOrEqual(t, len(items), 1000)
	}
	for cut := 0; cut < len(content); cut += step {
		o := KeyedOptions{Reader: bytes.NewReader(content[:cut]), Format: FormatParquet, Key: "key"}
		_, err := drain(open(t, o), 10)
		require.True(t, cut == 0 || err != nil)
	}
}
