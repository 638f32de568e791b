package grep

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
)

// found is what Search finds in one block.
func found(o Options, text []byte) (matches []Match) {
	NewSearch(o).each(&connector.Block{Text: text, Line: 1}, func(m Match) { matches = append(matches, m) })
	return matches
}

func TestSearch(t *testing.T) {
	text := "one fish\ntwo fish\r\n\nRED fish\nblue whale"
	for want, o := range map[string]Options{
		"1@0 one fish|2@9 two fish|4@20 RED fish":    {Strings: []string{"fish"}},
		"5@29 blue whale":                            {Strings: []string{"whale"}},
		"1@0 one fish|5@29 blue whale":               {Strings: []string{"one", "whale"}},
		"4@20 RED fish":                              {Strings: []string{"red"}, IgnoreCase: true},
		"2@9 two fish":                               {Patterns: []string{"^two.*h$"}},
		"3@19 ":                                      {Patterns: []string{"^$"}},
		"4@20 RED fish|5@29 blue whale":              {Patterns: []string{"red|blue"}, IgnoreCase: true},
		"1@0 one fish|4@20 RED fish|5@29 blue whale": {Strings: []string{"RED"}, Patterns: []string{"whale", "one"}},
		"": {Strings: []string{"whales"}, Patterns: []string{"fish\n", "sh\\s+tw", "fish$x"}},
	} {
		var lines []string
		for _, m := range found(o, []byte(text)) {
			lines = append(lines, fmt.Sprintf("%d@%d %s", m.Line, m.Offset, m.Text))
		}
		require.Equal(t, want, strings.Join(lines, "|"), "%+v", o)
		require.Equal(t, Compare(found(o, []byte(text)), Exact(o, []byte(text))), Quality{Matches: len(lines), Reported: len(lines)})
	}
}

// TestSearchAgainstExact: few letters, so that strings overlap, contain and continue each other.
func TestSearchAgainstExact(t *testing.T) {
	word := rapid.StringMatching(`[abAq]{1,5}`)
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Strings:    rapid.SliceOfN(word, 0, 5).Draw(t, "strings"),
			Patterns:   rapid.SliceOfN(rapid.SampledFrom([]string{"ab+q", "^a", "b$", "ba(a|b)q", "[^a]b", "\\s", "a\nb", "qa.*b"}), 0, 2).Draw(t, "patterns"),
			IgnoreCase: rapid.Bool().Draw(t, "ignore case"),
		}
		if len(o.Strings)+len(o.Patterns) == 0 {
			return
		}
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "A", "q", "aab", "\n", "\r\n", "\xff", "é"})).Draw(t, "text")
		text := []byte(strings.Join(pieces, ""))
		want := Exact(o, text)
		got := found(o, text)
		require.Equal(t, Quality{Matches: len(want), Reported: len(want)}, Compare(got, want))
		for i := range got {
			require.Equal(t, want[i], got[i])
		}
		require.EqualValues(t, len(want), newLineFinder(o).count(text))
		require.LessOrEqual(t, len(want), max(len(text), 1), "beta")
	})
}

// TestCommonByte: a text full of the byte that is rare elsewhere.
func TestCommonByte(t *testing.T) {
	text := []byte(strings.Repeat("qqqq qqqx\n", 1000) + "needle quiz\n" + strings.Repeat("qqq\n", 10) + "quiz")
	for _, s := range []string{"quiz", "iz", "qqqx", "z"} {
		o := Options{Strings: []string{s}}
		require.Equal(t, Exact(o, text), found(o, text))
	}
}

// TestReplacementCharacter: in a pattern it matches invalid bytes, in a string only itself.
func TestReplacementCharacter(t *testing.T) {
	text := []byte("a\xff\na\ufffd\n")
	require.Len(t, found(Options{Patterns: []string{"a\ufffd"}}, text), 2)
	require.Len(t, found(Options{Strings: []string{"a\ufffd"}}, text), 1)
}

// TestBeta: no text of BlockSize bytes has more matches.
func TestBeta(t *testing.T) {
	for s, o := range map[string]Options{
		"ab\n": {Strings: []string{"abc", "ab"}, BlockSize: 60},
		"\n":   {Patterns: []string{"$"}, BlockSize: 60},
		"a\n":  {Strings: []string{"a"}, BlockSize: 61},
	} {
		text := []byte(strings.Repeat(s, o.BlockSize)[:o.BlockSize])
		require.LessOrEqual(t, float64(len(found(o, text))), o.Beta())
		require.GreaterOrEqual(t, float64(len(found(o, text)))+1, o.Beta(), "and it is not much larger")
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{}, {Strings: []string{""}}, {Strings: []string{"a\nb"}}, {Patterns: []string{"("}}, {Patterns: []string{""}},
		{Strings: []string{"a"}, BlockSize: 1}, {Strings: []string{strings.Repeat("a", maxStrings+1)}},
	} {
		require.ErrorIs(t, o.Validate(), ErrOptions)
		require.Panics(t, func() { NewSearch(o) })
	}
}

func TestCompare(t *testing.T) {
	exact := []Match{{Text: []byte("a"), Line: 1}, {Text: []byte("b"), Offset: 2, Line: 2}}
	reported := []Match{exact[0], exact[0], {Text: []byte("c"), Offset: 2, Line: 2}}
	require.Equal(t, Quality{Missing: 1, Repeated: 1, Extra: 1, Matches: 2, Reported: 3}, Compare(reported, exact))
}

func FuzzSearch(f *testing.F) {
	f.Add("quiz", "one quiz\r\ntwo", true)
	f.Fuzz(func(t *testing.T, s, text string, ignoreCase bool) {
		o := Options{Strings: []string{s, s + "x"}, IgnoreCase: ignoreCase}
		if o.Validate() != nil {
			return
		}
		for _, strings := range [][]string{{s}, o.Strings} {
			o.Strings = strings
			require.Equal(t, Exact(o, []byte(text)), found(o, []byte(text)))
		}
		o = Options{Patterns: []string{regexp.QuoteMeta(s)}}
		if o.Validate() != nil { // not UTF-8
			return
		}
		require.Equal(t, Exact(o, []byte(text)), found(o, []byte(text)))
	})
}

func FuzzMatch(f *testing.F) {
	statetest.FuzzBinary(f, ErrMatch, statetest.Canonical, Match{Text: []byte("one"), Offset: 3, Line: 2})
}

func TestSearchDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes the pool of regexp allocate")
	}
	blocks, _ := benchText()
	for _, o := range []Options{{Strings: []string{"winter"}}, {Strings: []string{"winter", "x"}}, {Patterns: []string{"winter"}}} {
		s, n := NewSearch(o), 0
		require.Zero(t, testing.AllocsPerRun(3, func() { s.each(&blocks[0], func(Match) { n++ }) }))
		require.Positive(t, n)
	}
}

// benchText is 1 MiB of prose in blocks of the default size.
func benchText() (blocks []connector.Block, size int) {
	lines := bytes.Repeat([]byte("It was the best of times, it was the worst of times, it was the age of wisdom, it was the age\n"+
		"of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season\n"+
		"of Light, it was the season of Darkness, it was the spring of hope, it was the winter of despair.\n"), 3600)
	for at := 0; at < len(lines); at += connector.DefaultBlockSize {
		text := lines[at:min(at+connector.DefaultBlockSize, len(lines))]
		blocks = append(blocks, connector.Block{Text: text})
		size += len(text)
	}
	return blocks, size
}

// BenchmarkByHand is what the others are measured against: bytes.Index over each block, with the line and its number
// for each match.
func BenchmarkByHand(b *testing.B) {
	blocks, size := benchText()
	for _, s := range []string{"quizzical", "winter"} {
		b.Run(s, func(b *testing.B) {
			b.SetBytes(int64(size))
			n, line := 0, Match{}
			for range b.N {
				for i := range blocks {
					for text, number := blocks[i].Text, 1; ; n++ {
						at := bytes.Index(text, []byte(s))
						if at < 0 {
							break
						}
						start := bytes.LastIndexByte(text[:at], '\n') + 1
						number += bytes.Count(text[:start], []byte{'\n'})
						end := bytes.IndexByte(text[at:], '\n')
						if end < 0 {
							break
						}
						line = Match{Text: text[start : at+end], Line: uint64(number)}
						text, number = text[at+end+1:], number+1
					}
				}
			}
			_ = line
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	blocks, size := benchText()
	for name, o := range map[string]Options{
		"no_match":    {Strings: []string{"quizzical"}},
		"winter":      {Strings: []string{"winter"}},
		"two":         {Strings: []string{"quizzical", "winter"}},
		"ignore_case": {Strings: []string{"WINTER"}, IgnoreCase: true},
		"prefixed":    {Patterns: []string{"winter.*despair"}},
		"any_regexp":  {Patterns: []string{"[wW]inter.*despair"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			s := NewSearch(o)
			n := 0
			for range b.N {
				for i := range blocks {
					s.each(&blocks[i], func(Match) { n++ })
				}
			}
		})
	}
}
