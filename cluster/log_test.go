package cluster

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	l := Line{At: time.Unix(1, 2).UTC(), Level: "INFO", Text: "a \"b\"\n\x00", Node: "n", Worker: "count/1"}
	got, err := DecodeLine(l.Encode())
	require.NoError(t, err)
	require.Equal(t, l, got)

	l.Text = strings.Repeat("ä", maxText)
	got, err = DecodeLine(l.Encode())
	require.NoError(t, err)
	require.LessOrEqual(t, len(got.Text), maxText)
	require.True(t, strings.HasSuffix(got.Text, "ä"+cutOff))

	l.Text = "\xff"
	got, err = DecodeLine(l.Encode())
	require.NoError(t, err)
	require.True(t, utf8.ValidString(got.Text))
}

// FuzzDecodeLine: what can be read is the same when it is written and read again.
func FuzzDecodeLine(f *testing.F) {
	f.Add(Line{At: time.Unix(1, 2).UTC(), Level: "WARN", Text: "x", Node: "n", Worker: "w/0"}.Encode())
	f.Add([]byte(`{"at":"2020-01-01T00:00:00+01:00"}`))
	f.Add([]byte(`{"text":"\ud800"`))
	f.Fuzz(func(t *testing.T, message []byte) {
		l, err := DecodeLine(message)
		if err != nil {
			require.ErrorIs(t, err, ErrRecord)
			return
		}
		if len(l.Text) > maxText {
			return
		}
		again, err := DecodeLine(l.Encode())
		require.NoError(t, err)
		require.True(t, l.At.Equal(again.At))
		l.At, again.At = time.Time{}, time.Time{}
		require.Equal(t, l, again)
	})
}
