package job

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumberInJSON(t *testing.T) {
	for n, want := range map[Number]string{
		0: "0", 1: "1", -3: "-3", 10_000_000: "10000000", 0.5: "0.5", 1e20: "1e+20", 1e-9: "1e-09",
		Number(math.Inf(1)): "null", Number(math.Inf(-1)): "null",
	} {
		got, err := json.Marshal(n)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	got, err := json.Marshal([]Number{Number(math.NaN())})
	require.NoError(t, err)
	require.Equal(t, "[null]", string(got))
}

func TestNumberForPeople(t *testing.T) {
	for n, want := range map[Number]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234.5: "-1,234.5", 0.125: "0.125",
		833.333333: "833.333", 0.0001: "0.0001", 1e15: "1e+15", 999.9999: "1,000", Number(math.Inf(1)): "infinite",
	} {
		require.Equal(t, want, n.String())
	}
	require.Equal(t, "unknown", Number(math.NaN()).String())
}

func TestUnits(t *testing.T) {
	require.Equal(t, "12.3 M", scaled(12_345_678))
	require.Equal(t, "12 ", scaled(12))
	require.Equal(t, "1.5 k", scaled(1500))
	require.Equal(t, "1.2 ms", seconds(0.0012))
	require.Equal(t, "12 µs", seconds(12e-6))
	require.Equal(t, "1.20 s", seconds(1.2))
	require.Equal(t, "120 s", seconds(120))
	require.Equal(t, "1 item", plural(1, "item", "items"))
	require.Equal(t, "1,000 items", plural(1000, "item", "items"))
}
