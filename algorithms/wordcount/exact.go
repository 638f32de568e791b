package wordcount

import (
	"bytes"
	"unicode/utf8"

	uax29 "github.com/clipperhouse/uax29/v2/words"
)

// Exact counts words in another way than Count does, slowly and without any of its tables, to check what a job
// reports. It may not be used by two goroutines at once.
type Exact struct {
	counts     map[string]uint64
	total      uint64
	boundaries Boundaries
	fold       bool
}

// NewExact returns an Exact of no words. It panics if o is not valid; see Options.Validate.
func NewExact(o Options) *Exact {
	o.mustBeValid()
	return &Exact{counts: map[string]uint64{}, boundaries: o.Boundaries, fold: o.Fold}
}

// Add counts the words of a text. A word does not go on from one call to the next.
func (e *Exact) Add(text []byte) {
	switch e.boundaries {
	case Alnum:
		e.addAll(bytes.FieldsFunc(text, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9')
		}))
	case Letters:
		e.addAll(bytes.FieldsFunc(text, func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') }))
	case Fields:
		e.addAll(bytes.FieldsFunc(text, func(r rune) bool {
			return r == ' ' || r == '\t' || r == '\n' || r == '\v' || r == '\f' || r == '\r'
		}))
	default:
		for words := uax29.FromBytes(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError)))); words.Next(); {
			if isWord(words.Value()) {
				e.add(words.Value())
			}
		}
	}
}

func (e *Exact) addAll(words [][]byte) {
	for _, w := range words {
		e.add(w)
	}
}

func (e *Exact) add(word []byte) {
	if e.fold {
		word = appendLower(nil, word)
	}
	e.counts[string(word)]++
	e.total++
}

// Total returns the number of words.
func (e *Exact) Total() uint64 { return e.total }

// Len returns the number of different words.
func (e *Exact) Len() int { return len(e.counts) }

// Count returns how often word occurred.
func (e *Exact) Count(word string) uint64 { return e.counts[word] }

// Quality says how far a table of words is from the exact one.
type Quality struct {
	// MaxError is the largest difference of the counts of one word: the Max norm.
	MaxError uint64 `json:"max_error"`
	// SumError is the sum of the differences over all words: the L1 norm.
	SumError uint64 `json:"sum_error"`
	// Missing is how many words of the text are not in the table, Extra how many words of the table not in the text.
	Missing int `json:"missing"`
	Extra   int `json:"extra"`
	// Words and Reported are the numbers of different words in the text and in the table.
	Words    int `json:"words"`
	Reported int `json:"reported"`
}

// Compare checks a whole table, as a job with Options.Top = 0 emits it, against exact counts. Rows of the same word are
// added up.
func Compare(rows []Row, exact *Exact) Quality {
	reported := make(map[string]uint64, len(rows))
	for _, r := range rows {
		reported[r.Word] += r.Count
	}
	q := Quality{Words: len(exact.counts), Reported: len(reported)}
	note := func(a, b uint64) {
		d := max(a, b) - min(a, b)
		q.MaxError = max(q.MaxError, d)
		q.SumError += d
	}
	for word, count := range exact.counts {
		got, ok := reported[word]
		if !ok {
			q.Missing++
		}
		note(got, count)
	}
	for word, count := range reported {
		if _, ok := exact.counts[word]; !ok {
			q.Extra++
			note(count, 0)
		}
	}
	return q
}
