package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "17": 17, "10_000": 10_000, "1e6": 1_000_000, "2.5e3": 2500, "20M": 20_000_000, "1.5k": 1500, "3G": 3_000_000_000,
		"18446744073709551615": 1<<64 - 1,
	} {
		var n count
		require.NoError(t, n.Set(text), text)
		require.Equal(t, count(want), n, text)
	}
	for _, text := range []string{"", "-1", "1.5", "x", "NaN", "inf", "1e30", "k", "5m", "1e-3", "0x", "18446744073709551616"} {
		n := count(7)
		require.Error(t, n.Set(text), text)
		require.Equal(t, count(7), n, "unchanged by %q", text)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"theta", "threshold", "verify", "l", "zipf"}
	for got, want := range map[string]string{
		"theat": "theta", "treshold": "threshold", "verfy": "verify", "Verify": "verify", "zpif": "zipf",
		"output": "", "completely-else": "", "": "",
	} {
		require.Equal(t, want, nearest(got, names), got)
	}
}
