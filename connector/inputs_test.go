package connector

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/data"
)

// sample is an input of some format with bad rows in it where the format can have any.
type sample struct {
	name    string // of the file
	content []byte
	o       KeyedOptions // without Path
}

// samples returns an input of each format, plain and compressed, of n rows.
func samples(t testing.TB, n int) []sample {
	t.Helper()
	var text, csv, jsonl strings.Builder
	csv.WriteString("a,key,w\r\n")
	for i := range n {
		switch {
		case i%13 == 5: // rows that every format must skip
			text.WriteString("key not-a-number\n")
			csv.WriteString("x,\"never closed,1\r\n")
			jsonl.WriteString("{\"key\":\n")
		case i%13 == 7: // rows with nothing in them
			text.WriteString("  \r\n")
			csv.WriteString("\r\n")
			jsonl.WriteString(" \n")
		default:
			fmt.Fprintf(&text, "key%d %d.5\n", i%29, i)
			fmt.Fprintf(&csv, "x,\"key, \"\"%d\"\"\",%d.5\r\n", i%29, i)
			fmt.Fprintf(&jsonl, "{\"key\":\"k\\u0065y%d\",\"w\":%d.5}\n", i%29, i)
		}
	}
	text.WriteString("last") // without an end of line
	columns := KeyedOptions{Key: "key", Weight: "w", OnBad: SkipBad}
	packets := KeyedOptions{Key: "flow", Weight: "bytes", OnBad: SkipBad}
	plain := []sample{
		{"s.txt", []byte(text.String()), KeyedOptions{OnBad: SkipBad}},
		{"s.csv", []byte(csv.String()), columns},
		{"s.jsonl", []byte(jsonl.String()), columns},
		{"s.pcap", capture(t, n), packets},
		{"s.pcapng", captureNG(t, n), packets},
		{"s.parquet", parquetFile(t, n), columns},
	}
	all := plain
	for _, s := range plain {
		all = append(all, sample{s.name + ".gz", zipped(t, s.content), s.o})
	}
	return all
}

// packets calls f with the first n packets of the shipped capture.
func packets(t testing.TB, n int, f func(p []byte, r *pcapgo.Reader, i int)) {
	t.Helper()
	file, _ := data.Lookup("cip.pcap")
	r, err := pcapgo.NewReader(strings.NewReader(file.Content))
	require.NoError(t, err)
	for i := range n {
		p, _, err := r.ZeroCopyReadPacketData()
		require.NoError(t, err)
		f(p, r, i)
	}
}

// capture returns the beginning of the shipped capture, n packets long.
func capture(t testing.TB, n int) []byte {
	file, _ := data.Lookup("cip.pcap")
	size := pcapHeader
	packets(t, n, func(p []byte, _ *pcapgo.Reader, _ int) { size += pcapRecord + len(p) })
	return []byte(file.Content[:size])
}

// captureNG returns the same packets in the other format.
func captureNG(t testing.TB, n int) []byte {
	t.Helper()
	file, _ := data.Lookup("cip.pcap")
	r, err := pcapgo.NewReader(strings.NewReader(file.Content))
	require.NoError(t, err)
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	require.NoError(t, err)
	for range n {
		p, ci, err := r.ReadPacketData()
		require.NoError(t, err)
		ci.InterfaceIndex = 0
		require.NoError(t, w.WritePacket(ci, p))
	}
	require.NoError(t, w.Flush())
	return b.Bytes()
}

type parquetRow struct {
	Key  *string  `parquet:"key,optional"`
	W    *float64 `parquet:"w,optional"`
	I    int64    `parquet:"i"`
	B    bool     `parquet:"b"`
	F    float32  `parquet:"f"`
	List []string `parquet:"list,list"`
}

// parquetFile returns n rows in several row groups, with nulls and NaN among them.
func parquetFile(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b, parquet.MaxRowsPerRowGroup(100), parquet.PageBufferSize(256))
	for i := range n {
		key, weight := fmt.Sprintf("key%d", i%29), float64(i)+0.5
		row := parquetRow{Key: &key, W: &weight, I: int64(i - 3), B: i%2 == 0, F: float32(i) / 4, List: []string{"x"}}
		switch i % 13 {
		case 5:
			row.Key = nil
		case 7:
			row.W = nil
		case 8:
			weight = -1
		}
		_, err := w.Write([]parquetRow{row})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func openFile(t testing.TB, path string) io.Reader {
	t.Helper()
	f, err := os.Open(filepath.Clean(path))
	require.NoError(t, err)
	return f
}
