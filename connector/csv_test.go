package connector

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCSV(t *testing.T) {
	o := KeyedOptions{Key: "key", Weight: "w"}
	for _, c := range []struct {
		name, file, content string
		o                   KeyedOptions
		want                []pair
	}{
		{"plain", "a.csv", "x,key,w\n1,a,2\n,b,3\n", o, []pair{{"a", 2}, {"b", 3}}},
		{"no weight", "a.csv", "x,key\n1,a\n", KeyedOptions{Key: "key"}, []pair{{"a", 1}}},
		{"DOS lines", "a.csv", "key,w\r\na,2\r\nb,3", o, []pair{{"a", 2}, {"b", 3}}},
		{"quotes", "a.csv", "\"key\",w\n\"a,b\",\"2\"\n\"say \"\"hi\"\"\",3\n", o, []pair{{"a,b", 2}, {`say "hi"`, 3}}},
		{"byte order mark", "a.csv", "\xef\xbb\xbfkey,w\na,2\n", o, []pair{{"a", 2}}},
		{"tabs", "a.tsv", "key\tw\na,b\t2\n", o, []pair{{"a,b", 2}}},
		{"blank lines", "a.csv", "key,w\n\na,2\n\n", o, []pair{{"a", 2}}},
		{"not UTF-8", "a.csv", "key,w\n\xff,2\n", o, []pair{{"\xff", 2}}},
		{"numbers, no header", "a.csv", "a,2\nb,3\n", KeyedOptions{Key: "1", Weight: "2"}, []pair{{"a", 2}, {"b", 3}}},
		{"a number that is a name", "a.csv", "x,1\na,b\n", KeyedOptions{Key: "1"}, []pair{{"b", 1}}},
		{"header only", "a.csv", "key,w\n", o, nil},
		{"key and weight in one", "a.csv", "w\n5\n", KeyedOptions{Key: "w", Weight: "w"}, []pair{{"5", 5}}},
		{"stated format", "a", "key,w\na,2\n", KeyedOptions{Key: "key", Format: FormatCSV}, []pair{{"a", 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Path = writeFile(t, c.file, []byte(c.content))
			require.Equal(t, c.want, pairs(read(t, c.o)))
		})
	}
}

// TestCSVBadRows: a bad row costs itself alone, above all not the rows that a stray quote
// would swallow.
func TestCSVBadRows(t *testing.T) {
	for row, why := range map[string]string{
		`"b,1`:     "quote is not closed",
		`b",1`:     "quote within a field",
		`"b"x,1`:   "quote within a field",
		`b`:        "1 fields, want 2",
		`b,1,2`:    "3 fields, want 2",
		`,1`:       "key is missing",
		`"",1`:     "key is missing",
		`b,`:       `weight ""`,
		`b,NaN`:    `weight "NaN"`,
		`b,+Inf`:   `weight "+Inf"`,
		`b,-0.001`: `weight "-0.001"`,
		`b,1e400`:  `weight "1e400"`,
	} {
		path := writeFile(t, "a.csv", []byte("key,w\na,1\n"+row+"\nc,3\n\"d\",4\n"))
		_, err := drain(open(t, KeyedOptions{Path: path, Key: "key", Weight: "w"}), 10)
		require.ErrorContains(t, err, "line 3: "+why)

		s := open(t, KeyedOptions{Path: path, Key: "key", Weight: "w", OnBad: SkipBad})
		items, err := drain(s, 10)
		require.NoError(t, err)
		require.Equal(t, []pair{{"a", 1}, {"c", 3}, {"d", 4}}, pairs(items), row)
		require.EqualValues(t, 1, s.(Skipper).Skipped())
	}
}

// TestCSVAgreesWithEncodingCSV: whatever a standard writer makes of fields without line
// breaks is read back.
func TestCSVAgreesWithEncodingCSV(t *testing.T) {
	field := rapid.StringMatching(`[a ",;'\t]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.SliceOfN(field, 3, 3), 1, 5).Draw(t, "records")
		var b strings.Builder
		w := csv.NewWriter(&b)
		require.NoError(t, w.WriteAll(records))
		row := csvRow{comma: ',', fields: 3, key: 1, weight: -1}
		for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
			got, err := row.split([]byte(line))
			require.NoError(t, err)
			require.Equal(t, records[i], got)
			var item Keyed
			ok, err := row.parse([]byte(line), &item)
			if records[i][1] == "" {
				require.ErrorIs(t, err, errMissingKey)
				continue
			}
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, MakeKeyed([]byte(records[i][1]), 1), item)
		}
	})
}
