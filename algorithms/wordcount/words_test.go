package wordcount

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	uax29 "github.com/clipperhouse/uax29/v2/words"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func wordsOf(c *cutter, text string) (words []string) {
	c.reset([]byte(text))
	for w := c.next(); w != nil; w = c.next() {
		words = append(words, string(w))
	}
	return words
}

// fullRules cuts by the library alone.
func fullRules(text string) (words []string) {
	for it := uax29.FromString(strings.ToValidUTF8(text, "\ufffd")); it.Next(); {
		if isWord([]byte(it.Value())) {
			words = append(words, it.Value())
		}
	}
	return words
}

func TestWords(t *testing.T) {
	text := "The quick-brown fox can't jump 3.14 feet; snake_case __ naïve 漢字, e.g. “Straße”.\r\nÉcole 'tis 1,000,000 a:b U.S."
	for boundaries, want := range map[Boundaries]string{
		Unicode: "The quick brown fox can't jump 3.14 feet snake_case naïve 漢 字 e.g Straße École tis 1,000,000 a:b U.S",
		Alnum:   "The quick brown fox can t jump 3 14 feet snake case na ve e g Stra e cole tis 1 000 000 a b U S",
		Letters: "The quick brown fox can t jump feet snake case na ve e g Stra e cole tis a b U S",
		Fields:  "The quick-brown fox can't jump 3.14 feet; snake_case __ naïve 漢字, e.g. “Straße”. École 'tis 1,000,000 a:b U.S.",
	} {
		require.Equal(t, want, strings.Join(wordsOf(newCutter(boundaries, false), text), " "))
		require.Equal(t, strings.ToLower(want), strings.Join(wordsOf(newCutter(boundaries, true), text), " "))
	}
	require.Equal(t, []string{"a\xffé\xc3"}, wordsOf(newCutter(Fields, true), " A\xffÉ\xc3 "), "invalid bytes are kept")
	require.Equal(t, []string{"na", "ve"}, wordsOf(newCutter(Unicode, false), "na\xefve"), "or separate")
}

// TestASCIIPathExhaustively compares the table with the full rules on all strings of up to five characters, one for
// each class and some that the full rules know and the table must leave to them.
func TestASCIIPathExhaustively(t *testing.T) {
	alphabet := []string{"a", "1", "_", ":", ".", ",", "'", "\"", " ", "-", "é", "\u0301", "א", "\u200d"}
	c := newCutter(Unicode, false)
	var check func(text string, left int)
	check = func(text string, left int) {
		if want := fullRules(text); !equal(want, wordsOf(c, text)) {
			t.Fatalf("%q: %q, want %q", text, wordsOf(c, text), want)
		}
		if left == 0 {
			return
		}
		for _, s := range alphabet {
			check(text+s, left-1)
		}
	}
	check("", 5)
}

func equal(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }

// TestASCIIClasses tries every ASCII character between others of every class.
func TestASCIIClasses(t *testing.T) {
	c := newCutter(Unicode, false)
	for r := range rune(utf8.RuneSelf) {
		for _, before := range []string{"", "a", "1", "_", "é", " "} {
			for _, after := range []string{"", "a", "1", "_", "é", " "} {
				text := before + string(r) + after
				require.Equal(t, fullRules(text), wordsOf(c, text), "%q", text)
			}
		}
	}
}

func TestWordsOfAnyText(t *testing.T) {
	c := newCutter(Unicode, false)
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "Zz", "9", "_", "'", ".", ":", ",", ";", "\"", " ", "\n", "\r\n", "\t", "-", "é", "ß", "\u0300", "\u00ad", "א", "ש\"ת", "カ",
			"漢", "ก", "🇩🇪", "👩\u200d👩", "\u3000", "\u2028", "\u0085", "²", "٣", "\xff", "\xe6\xbc",
		})).Draw(t, "pieces")
		text := strings.Join(pieces, "")
		require.Equal(t, fullRules(text), wordsOf(c, text), "%q", text)
	})
}

// TestTwoBytesAWord: alpha rests on it. ASCII words need a separator; so a shorter word than two bytes would have to touch
// a word of two bytes.
func TestTwoBytesAWord(t *testing.T) {
	for r := rune(utf8.RuneSelf); r < 0x800; r++ {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			continue
		}
		for _, text := range []string{"a" + string(r) + "a", "1" + string(r) + "1"} {
			require.Len(t, fullRules(text), 1, "%q", text)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("can't 3.14 naïve \"ש\"ת a\u0301")
	c := newCutter(Unicode, false)
	f.Fuzz(func(t *testing.T, text string) {
		words := wordsOf(c, text)
		require.Equal(t, fullRules(text), words, "%q", text)
		require.LessOrEqual(t, len(words), (len(text)+1)/2)
	})
}
