package wordcount

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	uax29 "github.com/clipperhouse/uax29/v2/words"
)

// class says what a byte is to a cutter, as bits.
type class uint8

const (
	letter    class = 1 << iota // and, where words are runs of bytes, any byte of a word
	digit                       // Unicode: Numeric
	connects                    // Unicode: ExtendNumLet, the underscore
	midLetter                   // Unicode: MidLetter, MidNumLet, Single_Quote: joins two letters
	midDigit                    // Unicode: MidNum, MidNumLet, Single_Quote: joins two digits
	high                        // Unicode: not ASCII, to be looked at by the full rules
	upper                       // to be folded
)

// cutter cuts text into words. Words that next returns are valid until the next call.
//
// ASCII is cut by a table and the few rules that apply to it: WB5 and WB8 to WB10 (runs of letters and digits), WB6, WB7,
// WB11 and WB12 (one mid character between two of a kind), WB13a and b (underscores). Where a word touches anything
// else, the stretch up to the next ASCII white space is left to the full rules. It may begin at any boundary, for no
// rule looks back across one except that for pairs of regional indicators, which are not ASCII; and before ASCII white
// space there always is one.
type cutter struct {
	classes [256]class
	runs    bool // words are runs of bytes, there are no rules
	fold    bool
	lowered []byte

	text   []byte
	at     int
	full   *uax29.Iterator[[]byte] // over the stretch that needs the full rules
	within bool                    // a stretch
	end    int                     // of the stretch
}

func newCutter(b Boundaries, fold bool) *cutter {
	c := &cutter{runs: b != Unicode && b != "", fold: fold, full: uax29.FromBytes(nil)}
	for i := range c.classes {
		c.classes[i] = classOf(byte(i), b)
		if i >= utf8.RuneSelf || 'A' <= i && i <= 'Z' {
			c.classes[i] |= upper
		}
	}
	return c
}

func classOf(c byte, b Boundaries) class {
	isLetter := 'a' <= c|0x20 && c|0x20 <= 'z'
	isDigit := '0' <= c && c <= '9'
	switch {
	case b == Fields:
		if !space(c) {
			return letter
		}
	case b == Letters:
		if isLetter {
			return letter
		}
	case b == Alnum:
		if isLetter || isDigit {
			return letter
		}
	case c >= utf8.RuneSelf:
		return high
	case isLetter:
		return letter
	case isDigit:
		return digit
	case c == '_':
		return connects
	case c == ':':
		return midLetter
	case c == ',' || c == ';':
		return midDigit
	case c == '.' || c == '\'':
		return midLetter | midDigit
	}
	return 0
}

func space(c byte) bool { return c == ' ' || c-'\t' <= '\r'-'\t' }

// reset makes c cut text next.
func (c *cutter) reset(text []byte) { c.text, c.at, c.within = text, 0, false }

// next returns the next word, nil at the end of the text.
func (c *cutter) next() []byte {
	if c.runs {
		return c.nextRun()
	}
	for {
		if c.within {
			if word := c.nextFull(); word != nil {
				return word
			}
		}
		word, seen, more := c.nextPlain()
		if !more {
			return nil
		}
		if word == nil {
			continue
		}
		if c.fold && seen&upper != 0 {
			return c.lower(word)
		}
		return word
	}
}

// nextRun is next where words are runs of bytes.
func (c *cutter) nextRun() []byte {
	text, classes, i := c.text, &c.classes, c.at
	for i < len(text) && classes[text[i]]&letter == 0 {
		i++
	}
	start, seen := i, class(0)
	for i < len(text) && classes[text[i]]&letter != 0 {
		seen |= classes[text[i]]
		i++
	}
	c.at = i
	switch word := text[start:i]; {
	case len(word) == 0:
		return nil
	case c.fold && seen&upper != 0:
		return c.lower(word)
	default:
		return word
	}
}

// nextPlain returns the next run of bytes that the table makes a word, with all classes in it. Without one it begins a
// stretch for the full rules, or it is at the end of the text if more is false.
func (c *cutter) nextPlain() (word []byte, seen class, more bool) {
	text, classes, i := c.text, &c.classes, c.at
	for {
		for i < len(text) && classes[text[i]]&(letter|digit|connects|high) == 0 {
			i++
		}
		if i == len(text) {
			c.at = i
			return nil, 0, false
		}
		if classes[text[i]]&high != 0 {
			c.begin(i) // a mark may belong to the character before it, but that is no word either way
			return nil, 0, true
		}
		start := i
		i, seen = run(text, i, classes)
		if i < 0 {
			c.begin(start)
			return nil, 0, true
		}
		if seen&(letter|digit) != 0 { // underscores alone are no word
			c.at = i
			return text[start:i], seen, true
		}
	}
}

// run returns the end of the word that begins at i, or -1 if the table alone cannot tell.
func run(text []byte, i int, classes *[256]class) (end int, seen class) {
	for {
		var last class
		for i < len(text) {
			k := classes[text[i]]
			if k&(letter|digit|connects) == 0 {
				break
			}
			last = k
			seen |= k
			i++
		}
		if i == len(text) {
			return i, seen
		}
		k := classes[text[i]]
		if k&high != 0 {
			return -1, 0
		}
		if k&(midLetter|midDigit) == 0 || i+1 == len(text) {
			return i, seen
		}
		after := classes[text[i+1]]
		if after&high != 0 {
			return -1, 0
		}
		if !(k&midLetter != 0 && last&after&letter != 0 || k&midDigit != 0 && last&after&digit != 0) {
			return i, seen
		}
		i++
	}
}

// begin leaves the stretch from start, which is no white space, to the next one to the full rules. Bytes that are not
// UTF-8 become characters that separate words: what the rules make of them would depend on what follows.
func (c *cutter) begin(start int) {
	end := start
	for end < len(c.text) && !space(c.text[end]) {
		end++
	}
	stretch := c.text[start:end]
	if !utf8.Valid(stretch) {
		stretch = bytes.ToValidUTF8(stretch, []byte(string(utf8.RuneError)))
	}
	c.full.SetText(stretch)
	c.within, c.end = true, end
}

// nextFull returns the next word of the stretch, nil at its end.
func (c *cutter) nextFull() []byte {
	for c.full.Next() {
		if word := c.full.Value(); isWord(word) {
			if c.fold {
				return c.lower(word)
			}
			return word
		}
	}
	c.within, c.at = false, c.end
	return nil
}

// isWord says whether a segment holds a letter or a decimal digit.
func isWord(segment []byte) bool {
	for len(segment) > 0 {
		r, n := utf8.DecodeRune(segment)
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return true
		}
		segment = segment[n:]
	}
	return false
}

// lower returns word in lower case, valid until the next call.
func (c *cutter) lower(word []byte) []byte {
	c.lowered = appendLower(c.lowered[:0], word)
	return c.lowered
}

// appendLower appends word, character by character in lower case.
func appendLower(dst, word []byte) []byte {
	for i := 0; i < len(word); {
		b := word[i]
		if b < utf8.RuneSelf {
			if 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			dst = append(dst, b)
			i++
			continue
		}
		r, n := utf8.DecodeRune(word[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, b)
		} else {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
		i += n
	}
	return dst
}
