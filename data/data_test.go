package data_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/data"
)

func TestEveryNameIsThere(t *testing.T) {
	for _, name := range data.Names() {
		f, ok := data.Lookup(name)
		require.True(t, ok, name)
		require.NotEmpty(t, f.Content, name)
	}
	_, ok := data.Lookup("nothing")
	require.False(t, ok)
}

func TestCaptureIsWhole(t *testing.T) {
	f, _ := data.Lookup("cip.pcap")
	r, err := pcapgo.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	packets := 0
	for {
		_, _, err := r.ZeroCopyReadPacketData()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		packets++
	}
	require.Equal(t, 26_068, packets)
}

func TestFlightsAreWhole(t *testing.T) {
	f, _ := data.Lookup("flights")
	require.Less(t, len(f.Content), 400_000)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	records, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 20_001)
	require.Equal(t, []string{"date", "delay", "distance", "origin", "destination"}, records[0])
}

func TestTextIsWhole(t *testing.T) {
	f, _ := data.Lookup("opticks")
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	require.True(t, utf8.Valid(text))
	require.Equal(t, 4_108, bytes.Count(text, []byte{'\n'}))
	require.True(t, bytes.HasPrefix(text, []byte("THE FIRST BOOK OF OPTICKS\n")))
}
