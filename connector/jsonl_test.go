package connector

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestJSONL(t *testing.T) {
	o := KeyedOptions{Key: "key", Weight: "w"}
	for content, want := range map[string][]pair{
		`{"key":"a","w":2}` + "\r\n\n" + ` { "w" : 3.5 , "key" : "b" } `: {{"a", 2}, {"b", 3.5}},
		`{"key":12.50,"w":0}` + "\n" + `{"key":true,"w":1e2}`:            {{"12.50", 0}, {"true", 100}},
		`{"x":{"key":"no","w":[1,"}"]},"key":"a","w":1}`:                 {{"a", 1}},
		`{"key":"\u00e9\n\ud83d\ude00\\\"\/","w":1}`:                     {{"é\n😀\\\"/", 1}},
		`{"key":"\ud800x","w":1}`:                                        {{"\ufffdx", 1}},
		`{"k\u0065y":"a","w":1}`:                                         {{"a", 1}},
		`{"key":"a","key":"b","w":1,"w":2}`:                              {{"b", 2}},
		"{\"key\":\"\xff\\t\xfe\",\"w\":1}":                              {{"\xff\t\xfe", 1}},
		"\xef\xbb\xbf" + `{"key":"a","w":-0}`:                            {{"a", 0}},
	} {
		o.Path = writeFile(t, "a.jsonl", []byte(content))
		require.Equal(t, want, pairs(read(t, o)), content)
	}
	o.Path = writeFile(t, "unknown", []byte(`{"key":"a","w":7}`))
	require.Equal(t, []pair{{"a", 7}}, pairs(read(t, o)), "found by the first byte")
}

func TestJSONLBadRows(t *testing.T) {
	for row, why := range map[string]string{
		`{"key":"b","w":1`:      "not a JSON object",
		`["b",1]`:               "not a JSON object",
		`{"key":"b","w":1}{}`:   "not a JSON object",
		`{"key":"b","w":NaN}`:   "not a JSON object",
		`{"w":1}`:               "key is missing",
		`{"key":null,"w":1}`:    "key is missing",
		`{"key":"","w":1}`:      "key is missing",
		`{"key":{},"w":1}`:      "key is an object",
		`{"key":"b"}`:           "weight is missing",
		`{"key":"b","w":null}`:  "weight is missing",
		`{"key":"b","w":"1"}`:   "weight is not a number",
		`{"key":"b","w":false}`: "weight is not a number",
		`{"key":"b","w":-1}`:    `weight "-1"`,
		`{"key":"b","w":1e999}`: `weight "1e999"`,
	} {
		path := writeFile(t, "a.jsonl", []byte(`{"key":"a","w":1}`+"\n"+row+"\n"+`{"key":"c","w":3}`+"\n"))
		_, err := drain(open(t, KeyedOptions{Path: path, Key: "key", Weight: "w"}), 10)
		require.ErrorContains(t, err, "line 2: "+why)

		s := open(t, KeyedOptions{Path: path, Key: "key", Weight: "w", OnBad: SkipBad})
		items, err := drain(s, 10)
		require.NoError(t, err)
		require.Equal(t, []pair{{"a", 1}, {"c", 3}}, pairs(items), row)
		require.EqualValues(t, 1, s.(Skipper).Skipped())
	}
}

func TestJSONLAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.SampledFrom([]string{"key", "w", `a"\`, "é", "{"}),
			rapid.OneOf(rapid.String().AsAny(), rapid.Float64().AsAny(), rapid.Just[any](nil),
				rapid.SliceOfN(rapid.StringMatching(`[\[\]{}",\\]{0,4}`), 0, 3).AsAny()), 0, 5).Draw(t, "object")
		line, err := json.Marshal(object)
		require.NoError(t, err)
		checkJSONRow(t, line)
	})
}

// checkJSONRow holds the parser against encoding/json for a line of valid UTF-8.
func checkJSONRow(t require.TestingT, line []byte) {
	row := jsonRow{key: "key"}
	var item Keyed
	ok, err := row.parse(line, &item)
	var object map[string]any
	if json.Unmarshal(line, &object) != nil || object == nil {
		require.False(t, ok)
		return
	}
	text, isText := object["key"].(string)
	if isText && text != "" {
		require.NoError(t, err)
		require.Equal(t, MakeKeyed([]byte(text), 1), item)
	}
	if object["key"] == nil || isText && text == "" {
		require.ErrorIs(t, err, errMissingKey)
	}
}
