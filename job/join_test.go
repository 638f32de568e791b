package job

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/worker"
)

// morning is the job on the first flights only.
func morning() Join {
	j := DefaultJoin()
	j.Flights, j.Verify = 1000, true
	j.Theta, j.L, j.Gamma = 40, 20, 100
	return j
}

// airports writes a table of some airports and some that no flight goes to.
func airports(t *testing.T, codes ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "airports.csv")
	text := "iata,name\n" + strings.Join(codes, ",\"a name\"\n") + ",\r\n\nXXX\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestJoinThroughFailures checks what the job says about itself, for windows and for a table, whatever fails.
func TestJoinThroughFailures(t *testing.T) {
	table := airports(t, "ORD", "ATL", "DFW", "LAX", "BOS", "PHX")
	for i, with := range []string{"", table} {
		t.Run([]string{"windows", "table"}[i], func(t *testing.T) {
			throughFailures(t, part{5, i}, allPromises(), map[string][]string{
				"joins":   {"join/0@200", "join/1@150", "join/0@400"},
				"sources": {"left/0@20%", "left/0@50%", "right/0@2"},
				"sink":    {"pairs/0@50", "pairs/0@150"},
			}, func(t *testing.T, c trial) {
				j := morning()
				j.Table = with
				c.in(&j.Engine)
				r, err := j.Run(t.Context())
				v := survived(t, c, r, err)
				require.Zero(t, v.CleanDivergence)
				require.Equal(t, v.Expected-v.Missing, r.Outcome.Count, "what comes twice is there once")
				require.Greater(t, v.Expected, 200)
			})
		})
	}
}

func TestJoinBounds(t *testing.T) {
	j := DefaultJoin()
	j.Theta, j.L, j.Gamma = 50, 10, 100
	result := &controller.Result{Failures: []controller.Failure{{Operator: "left"}, {Operator: "join"}, {Operator: "pairs"}}}
	inf := math.Inf(1)
	for _, c := range []struct {
		name                        string
		change                      func(j *Join)
		missing, extra, lost, twice float64
	}{
		{"replay", func(*Join) {}, 60*3 + 110, 30 + 10, 110, 10},
		{"pipe", func(j *Join) { j.PipeSources = true }, (60+220)*3 + 110, 30 + 10, 330, 10},
		{"error-free", func(j *Join) { j.Guarantee = worker.ErrorFree }, 3, 6 + 1, 3, 2}, // one item in flight at each of two joins
		{"upstream backup", func(j *Join) { j.Guarantee, j.Batch = worker.UpstreamBackup, 20 }, 0, 40*3 + 40, 0, 40},
		{"none", func(j *Join) { j.Guarantee = worker.None }, inf, inf, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := j
			c.change(&j)
			v := &JoinVerification{Beta: 3}
			j.bounds(v, result)
			require.Equal(t, Number(c.missing), v.MissingBound)
			require.Equal(t, Number(c.extra), v.ExtraBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
			require.Equal(t, Number(c.twice), v.DuplicatedBound)
		})
	}
}

// TestJoinFindsBrokenBounds breaks each bound of a run that kept them.
func TestJoinFindsBrokenBounds(t *testing.T) {
	j := morning()
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *JoinVerification){
		"pairs missing":    func(v *JoinVerification) { v.Missing = 1 + int(v.MissingBound) },
		"pairs repeated":   func(v *JoinVerification) { v.Extra = 1 + int(v.ExtraBound) },
		"without failures": func(v *JoinVerification) { v.CleanDivergence = 1 },
		"items lost":       func(v *JoinVerification) { v.LostItems = 1e6 },
		"items repeated":   func(v *JoinVerification) { v.DuplicatedItems = 1e6 },
	})
}

// TestJoinAnswers joins so few flights that the result can be seen.
func TestJoinAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flights.csv")
	minute := func(n int) int { return n * microsOfMinute }
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%d,0,80,AAA,BBB\n%d,0,800,BBB,AAA\n%d,0,80,BBB,CCC\n",
		minute(0), minute(45), minute(-20)), 0o600)) // the first arrives after 40 minutes
	j := morning()
	j.Path, j.Window = path, 5
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	bbb := code(t, "BBB")
	pairs := []JoinPair{{JoinRow{1, bbb, 40}, JoinRow{2, bbb, 45}}}
	require.Equal(t, pairs, r.Outcome.Pairs)
	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "BBB         1          2              5\n\n1 pair, of 1 left row\n")
	require.Regexp(t, `\nleft unmatched +2 +of 3 have no partner\n`, text.String())
	require.NoError(t, r.WriteJSON(&raw))
	require.Contains(t, raw.String(), `"left_rows_matched": 1`)
	require.Contains(t, raw.String(), `"key": "BBB"`)

	j.Table, j.Show = airports(t, "AAA", "BBB"), 1
	r, err = j.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, r.Outcome.Count)
	require.Equal(t, []JoinPair{{JoinRow{1, bbb, 40}, JoinRow{2, bbb, 0}}}, r.Outcome.Pairs)
	require.Equal(t, 1, r.Verify.Unmatched)
	require.EqualValues(t, 3+3, r.Items, "the header is no row")
}

// TestJoinOfLongCodes: what cannot be told from another airport is refused, and the error says where it is.
func TestJoinOfLongCodes(t *testing.T) {
	j := morning()
	j.Table = airports(t, "ATL", "Hartsfield")
	_, err := j.Run(t.Context())
	require.ErrorContains(t, err, `airports.csv line 3: no code of an airport: "Hartsfield" has 10 bytes, want at most 8`)
	for _, flight := range []string{"0,0,80,Hartsfield,ATL", "0,0,80,ATL,Hartsfield"} {
		j := morning()
		j.Path = textFile(t, "0,0,80,AAA,BBB\n"+flight+"\n").Path
		_, err := j.Run(t.Context())
		require.ErrorContains(t, err, `line 2: no code of an airport: "Hartsfield" has 10 bytes`)
	}
}

func TestJoinOfNothing(t *testing.T) {
	j := morning()
	j.Path = textFile(t, "").Path
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "no pairs\n")
}

func TestJoinSettings(t *testing.T) {
	requireRefused(t, morning, func(j *Join) *Engine { return &j.Engine }, Join.Run, map[string]func(j *Join){
		"engine":      func(j *Join) { j.Workers = 0 },
		"path":        func(j *Join) { j.Path = " " },
		"stdin":       func(j *Join) { j.Path = connector.Stdin },
		"stdin table": func(j *Join) { j.Table = connector.Stdin },
		"window":      func(j *Join) { j.Window = -1 },
		"slack":       func(j *Join) { j.Slack = -1 },
		"show":        func(j *Join) { j.Show = -1 },
		"batch pipe":  func(j *Join) { j.Guarantee, j.PipeSources = worker.MiniBatch, true },
		"operator":    func(j *Join) { j.Faults = []controller.Fault{{Operator: "sketch", Items: 1}} },
	})
}

// FuzzJoinRow decodes rows as a damaged backup may hold them.
func FuzzJoinRow(f *testing.F) {
	wire, err := appendRow(nil, &JoinRow{Number: 7, Key: code(f, "ATL"), Minute: -5})
	require.NoError(f, err)
	f.Add(wire)
	f.Add([]byte{0x80})
	f.Add([]byte("\x01\x01too long a code"))
	f.Add([]byte("\x01\x01A\x00"))
	f.Fuzz(func(t *testing.T, src []byte) {
		before := JoinRow{Number: 1, Key: 7}
		row := before
		if err := decodeRow(src, &row); err != nil {
			require.Equal(t, before, row)
			return
		}
		wire, err := appendRow(nil, &row)
		require.NoError(t, err)
		var again JoinRow
		require.NoError(t, decodeRow(wire, &again))
		require.Equal(t, row, again)
	})
}
