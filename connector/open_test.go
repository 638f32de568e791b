package connector

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenChecks: what can be known before the job runs fails then, in words.
func TestOpenChecks(t *testing.T) {
	dir := t.TempDir()
	csv := writeFile(t, "a.csv", []byte("date,delay,origin\n1,2,A\n"))
	jsonl := writeFile(t, "a.jsonl", []byte("{\"origin\":\"A\",\"delay\":3}\n"))
	for _, c := range []struct {
		o    KeyedOptions
		want string
	}{
		{KeyedOptions{}, "no input"},
		{KeyedOptions{Path: filepath.Join(dir, "missing")}, "no such file"},
		{KeyedOptions{Path: dir}, "is a directory"},
		{KeyedOptions{Path: csv, Format: "cvs"}, `unknown format "cvs": did you mean "csv"?`},
		{KeyedOptions{Path: csv, OnBad: "skipp"}, `did you mean "skip"?`},
		{KeyedOptions{Path: csv}, "no key column given: there are date, delay, origin"},
		{KeyedOptions{Path: csv, Key: "Orgin"}, `unknown key column "Orgin": did you mean "origin"? there are date, delay, origin`},
		{KeyedOptions{Path: csv, Key: "origin", Weight: "zzzzzz"}, `unknown weight column "zzzzzz": there are`},
		{KeyedOptions{Path: csv, Key: "4"}, "key column 4: there are columns 1 to 3"},
		{KeyedOptions{Path: csv, Key: "0"}, "key column 0"},
		{KeyedOptions{Path: csv, Key: "1", Weight: "delay"}, "must be a number as the key column is"},
		{KeyedOptions{Path: writeFile(t, "b.csv", []byte("a,\"b\n1,2\n")), Key: "a"}, "line 1: quote is not closed"},
		{KeyedOptions{Path: jsonl}, "no key member given"},
		{KeyedOptions{Path: jsonl, Key: "orign"}, `did you mean "origin"?`},
		{KeyedOptions{Path: jsonl, Key: "origin", Weight: "w"}, `unknown weight column "w"`},
		{KeyedOptions{Path: writeFile(t, "a.txt", []byte("a\n")), Key: "k"}, "text has no columns"},
		{KeyedOptions{Path: writeFile(t, "a", []byte("PK\x03\x04\x00\x00"))}, "unknown format"},
		{KeyedOptions{Path: writeFile(t, "a.pcap", []byte("no capture, but long enough for its header"))}, "not a pcap file"},
		{KeyedOptions{Path: writeFile(t, "a.parquet", []byte("PAR1 and that is all"))}, "not a parquet file"},
		{KeyedOptions{Path: "builtin:flight"}, `unknown builtin input "flight": did you mean "flights"? there are cip.pcap, flights`},
		{KeyedOptions{Path: "builtin:cip.pcap", Key: "source"}, `unknown packet key "source": did you mean "src"? there are src, dst, pair, flow`},
		{KeyedOptions{Path: "builtin:cip.pcap", Weight: "byte"}, `did you mean "bytes"?`},
	} {
		_, err := OpenKeyed(c.o)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "failed to")
	}
}

func TestUnreadableFile(t *testing.T) {
	path := writeFile(t, "a.txt", []byte("a\n"))
	require.NoError(t, os.Chmod(path, 0))
	if f, err := os.Open(path); err == nil {
		f.Close()
		t.Skip("this user may read everything")
	}
	_, err := OpenKeyed(KeyedOptions{Path: path})
	require.ErrorIs(t, err, os.ErrPermission)
}

func TestFileThatGoesAwayBeforeTheRun(t *testing.T) {
	path := writeFile(t, "a.txt", []byte("a\n"))
	factory, err := OpenKeyed(KeyedOptions{Path: path})
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	_, err = factory(0, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestBuiltinFlights(t *testing.T) {
	items := read(t, KeyedOptions{Path: "builtin:flights", Key: "origin", Weight: "distance"})
	require.Len(t, items, 20_000)
	require.Equal(t, pair{"LAS", 2176}, pairs(items[:1])[0])
	s := open(t, KeyedOptions{Path: "builtin:flights", Key: "origin", Weight: "delay", OnBad: SkipBad})
	items, err := drain(s, 256)
	require.NoError(t, err)
	require.EqualValues(t, 20_000, int64(len(items))+s.(Skipper).Skipped(), "early flights have negative delays")
	require.Greater(t, s.(Skipper).Skipped(), int64(5000))
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		path, head string
		want       Format
	}{
		{"x", "plain words", FormatText},
		{"x", "  {\"a\":1}", FormatJSONL},
		{"x.json", "{\"a\":1}", FormatJSONL},
		{"x.CSV.gz", "{", FormatCSV},
		{"x.tsv", "a", FormatCSV},
		{"x.ndjson", "", FormatJSONL},
		{"x.log", "{", FormatText},
		{"x.pcap", "\x0a\x0d\x0d\x0a", FormatPcapNG},
		{"x.txt", "\xd4\xc3\xb2\xa1", FormatPcap},
		{"x", "\xa1\xb2\x3c\x4d", FormatPcap},
		{"x", "PAR1", FormatParquet},
		{"x.pcapng", "", FormatPcapNG},
	} {
		got, err := detect(c.path, []byte(c.head))
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%q %q", c.path, c.head)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		require.Equal(t, c.want, editDistance(c.a, c.b))
		require.Equal(t, c.want, editDistance(c.b, c.a))
	}
	require.ErrorContains(t, unknown("x", "q", strings.Fields(strings.Repeat("name ", 50))), "and 10 more")
}
