//go:build unix

package job

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
)

// wordsByHand counts runs of ASCII letters and digits in a Go map, which it asks without an allocation, and ranks them.
func wordsByHand(blocks []connector.Block) []wordcount.Row {
	counts := map[string]*uint64{}
	for i := range blocks {
		text := blocks[i].Text
		for at := 0; at < len(text); {
			for at < len(text) && !isAlnum(text[at]) {
				at++
			}
			start := at
			for at < len(text) && isAlnum(text[at]) {
				at++
			}
			if at == start {
				continue
			}
			if n, ok := counts[string(text[start:at])]; ok {
				*n++
				continue
			}
			one := uint64(1)
			counts[string(text[start:at])] = &one
		}
	}
	rows := make([]wordcount.Row, 0, len(counts))
	for word, n := range counts {
		rows = append(rows, wordcount.Row{Word: word, Count: *n})
	}
	slices.SortFunc(rows, func(a, b wordcount.Row) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Word, b.Word))
	})
	for i := range rows {
		rows[i].Rank = i + 1
	}
	return rows
}

func isAlnum(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' }

// figureOfWords mixes all ranks and counts.
func figureOfWords(rows []wordcount.Row) (sum uint64) {
	for _, r := range rows {
		sum = sum*31 + r.Count + uint64(len(r.Word))
	}
	return sum
}

// matchesByHand finds a string by bytes.Index, block by block, and the line around it, with its number.
func matchesByHand(blocks []connector.Block, s string) []grep.Match {
	var matches []grep.Match
	needle := []byte(s)
	for i := range blocks {
		b := &blocks[i]
		number := b.Line
		for from, counted := 0, 0; ; {
			at := bytes.Index(b.Text[from:], needle)
			if at < 0 {
				break
			}
			at += from
			start := bytes.LastIndexByte(b.Text[:at], '\n') + 1
			end := bytes.IndexByte(b.Text[at:], '\n')
			if end < 0 {
				end = len(b.Text) - at
			}
			number += uint64(bytes.Count(b.Text[counted:start], []byte{'\n'}))
			line := bytes.TrimSuffix(b.Text[start:at+end], []byte{'\r'})
			matches = append(matches, grep.Match{Text: line, Offset: b.Offset + int64(start), Line: number})
			if from, counted = at+end+1, start; from >= len(b.Text) {
				break
			}
		}
	}
	return matches
}

func figureOfMatches(matches []grep.Match) (sum uint64) {
	for _, m := range matches {
		sum += m.Line*31 + uint64(m.Offset) + uint64(len(m.Text)) // in any order
	}
	return sum
}

// airport holds the rows of one key that may still find partners, in the order in which they came; those before first are
// gone. Departures come in the order of time, arrivals by up to the slack out of it.
type airport struct{ arrivals, departures lineOf }

type lineOf struct {
	rows  []JoinRow
	first int
}

// add adds a row, and forgets those at the front that are older than oldest.
func (l *lineOf) add(r *JoinRow) { l.rows = append(l.rows, *r) }

func (l *lineOf) forget(oldest int64) {
	for l.first < len(l.rows) && l.rows[l.first].Minute < oldest {
		l.first++
	}
	if l.first > 32 && l.first > len(l.rows)/2 {
		l.rows = l.rows[:copy(l.rows, l.rows[l.first:])]
		l.first = 0
	}
}

// pairsByHand joins arrivals with departures by airport and time, one of each in turn. What the other input has left behind
// by more than the window and the slack finds no partner any more and is forgotten.
func pairsByHand(arrivals, departures []JoinRow, window, slack int64) []pair {
	var pairs []pair
	airports := map[Code]*airport{}
	at := func(key Code) *airport {
		a := airports[key]
		if a == nil {
			a = &airport{}
			airports[key] = a
		}
		return a
	}
	latest := int64(math.MinInt64 / 2)
	for i := range arrivals {
		r := &arrivals[i]
		latest = max(latest, r.Minute)
		a := at(r.Key)
		a.departures.forget(latest - window - slack)
		for k := len(a.departures.rows) - 1; k >= a.departures.first; k-- {
			d := &a.departures.rows[k]
			if d.Minute < r.Minute-window {
				break // the others left even earlier
			}
			if d.Minute <= r.Minute+window {
				pairs = append(pairs, pair{Left: *r, Right: *d, Matched: true})
			}
		}
		a.arrivals.add(r)

		r = &departures[i]
		a = at(r.Key)
		a.arrivals.forget(r.Minute - window - slack)
		for k := a.arrivals.first; k < len(a.arrivals.rows); k++ {
			if l := &a.arrivals.rows[k]; l.Minute >= r.Minute-window && l.Minute <= r.Minute+window {
				pairs = append(pairs, pair{Left: *l, Right: *r, Matched: true})
			}
		}
		a.departures.add(r)
	}
	return pairs
}

// modelByHand hashes flights, predicts each and learns from it by AdaGrad; it returns the length of the model.
func modelByHand(flights []logreg.Flight, o logreg.Options) float64 {
	type cell struct{ weight, squares float64 }
	bias := 1 << o.Bits
	cells := make([]cell, bias+1)
	hasher, q := logreg.NewHasher(o.Bits), &logreg.Prequential{}
	for i := range flights {
		e := hasher.Flight(&flights[i])
		z := cells[bias].weight
		for _, f := range e.Features {
			z += cells[f.Index].weight * float64(f.Value)
		}
		p := 1 / (1 + math.Exp(-z))
		q.Add(p, e.Positive)
		slope := p
		if e.Positive {
			slope--
		}
		for _, f := range e.Features {
			c := &cells[f.Index]
			g := slope * float64(f.Value)
			c.squares += g * g
			c.weight -= o.Rate * g / math.Sqrt(c.squares)
		}
		c := &cells[bias]
		c.squares += slope * slope
		c.weight -= o.Rate * slope / math.Sqrt(c.squares)
	}
	model := []logreg.Weight{}
	for i := range cells {
		if w := cells[i].weight; w != 0 {
			model = append(model, logreg.Weight{Index: uint32(i), Value: w})
		}
	}
	return norm(model)
}
