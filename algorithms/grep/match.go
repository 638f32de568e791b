package grep

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
)

// ErrMatch is wrapped by the errors of Match.UnmarshalBinary.
var ErrMatch = errors.New("grep: malformed match")

// Match is a line that matches.
type Match struct {
	Text   []byte // without the end of the line; it must not be changed, and it keeps its block in memory
	Offset int64  // of the line in the input
	Line   uint64 // its number, 1 for the first
}

// matchHeader is the fixed part of an encoded Match.
const matchHeader = 16

// AppendBinary appends the wire form of m; the error is always nil. It implements encoding.BinaryAppender.
func (m Match) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.Offset))
	dst = binary.LittleEndian.AppendUint64(dst, m.Line)
	return append(dst, m.Text...), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrMatch and leaves m as it
// was. It implements encoding.BinaryUnmarshaler.
func (m *Match) UnmarshalBinary(src []byte) error {
	if len(src) < matchHeader {
		return fmt.Errorf("%w: %d bytes", ErrMatch, len(src))
	}
	offset := int64(binary.LittleEndian.Uint64(src))
	if offset < 0 {
		return fmt.Errorf("%w: offset %d", ErrMatch, offset)
	}
	*m = Match{Text: bytes.Clone(src[matchHeader:]), Offset: offset, Line: binary.LittleEndian.Uint64(src[8:])}
	return nil
}

// Exact returns the lines of text that match, found in the simplest way: every line against every string and pattern.
// It is slow, and there to check what a job reports. It panics if o is not valid; see Options.Validate.
func Exact(o Options, text []byte) []Match {
	o.mustBeValid()
	var patterns []*regexp.Regexp
	for _, p := range o.Patterns {
		patterns = append(patterns, o.compile(p))
	}
	var matches []Match
	offset := int64(0)
	for number := uint64(1); len(text) > 0; number++ {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		found := false
		for _, s := range o.Strings {
			found = found || bytes.Contains(line, []byte(s)) || o.IgnoreCase && containsFolded(line, s)
		}
		for _, p := range patterns {
			found = found || p.Match(withoutCR(line))
		}
		if found {
			matches = append(matches, Match{Text: withoutCR(line), Offset: offset, Line: number})
		}
		offset += int64(len(text) - len(rest))
		text = rest
	}
	return matches
}

// containsFolded is bytes.Contains for which the case of ASCII letters does not matter.
func containsFolded(line []byte, s string) bool {
	return bytes.Contains(asciiLower(line), asciiLower([]byte(s)))
}

func asciiLower(b []byte) []byte {
	lower := bytes.Clone(b)
	for i, c := range lower {
		lower[i] = fold(c, true)
	}
	return lower
}

// Quality says how far a set of matches is from the exact one.
type Quality struct {
	// Missing is how many matches were lost, Repeated how many came again, Extra how many are none.
	Missing  int `json:"missing"`
	Repeated int `json:"repeated"`
	Extra    int `json:"extra"`
	// Matches and Reported are the numbers of matches in the text and in the answer.
	Matches  int `json:"matches"`
	Reported int `json:"reported"`
}

// Compare checks matches, in any order, against those of Exact. Matches are the same if offset, number and text are.
func Compare(reported, exact []Match) Quality {
	q := Quality{Matches: len(exact), Reported: len(reported)}
	left := make(map[int64]*Match, len(exact))
	for i := range exact {
		left[exact[i].Offset] = &exact[i]
	}
	seen := make(map[int64]bool, len(exact))
	for _, m := range reported {
		want, ok := left[m.Offset]
		switch {
		case !ok || want.Line != m.Line || !bytes.Equal(want.Text, m.Text):
			q.Extra++
		case seen[m.Offset]:
			q.Repeated++
		default:
			seen[m.Offset] = true
		}
	}
	q.Missing = len(exact) - len(seen)
	return q
}
