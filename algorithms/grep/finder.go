package grep

import "bytes"

// finder finds strings in a text.
type finder interface {
	// find returns where in text the end of the first occurrence of a string lies, or -1. It may belong to any string
	// that occurs in the same line.
	find(text []byte) int
}

// rareByte finds one string by its rarest byte.
type rareByte struct {
	needle []byte
	rare   byte
	at     int  // where rare lies in needle
	common bool // rare turned out not to be rare in this input
}

func newRareByte(s string) *rareByte {
	f := &rareByte{needle: []byte(s)}
	for i := range s {
		if i == 0 || commonness(s[i]) < commonness(f.rare) {
			f.rare, f.at = s[i], i
		}
	}
	return f
}

// commonness orders bytes by how often they occur in text, roughly: what matters is to look for 'q' and not for 'e'.
func commonness(c byte) int {
	const rising = "QZXJqKzVjxYUWkHGDBLFPNRMOECvSITApbygfwm,.-ucdlhrsnioate \n"
	i := bytes.IndexByte([]byte(rising), c)
	switch {
	case i >= 0:
		return i + 1
	case '0' <= c && c <= '9':
		return len(rising) / 2
	}
	return 0
}

func (f *rareByte) find(text []byte) int {
	if f.common {
		return f.findAll(text)
	}
	n := len(f.needle)
	for at, misses := f.at, 0; at < len(text); at++ {
		i := bytes.IndexByte(text[at:], f.rare)
		if i < 0 {
			return -1
		}
		at += i
		start := at - f.at
		if len(text)-start >= n && string(text[start:start+n]) == string(f.needle) {
			return start + n
		}
		if misses++; misses > 4+at/64 {
			f.common = true
			return f.findAll(text)
		}
	}
	return -1
}

// findAll is find for text in which rare is common: it compares more than one byte at a time.
func (f *rareByte) findAll(text []byte) int {
	i := bytes.Index(text, f.needle)
	if i < 0 {
		return -1
	}
	return i + len(f.needle)
}

// automaton finds any number of strings in one pass. States are the prefixes of the strings; the transitions on failure
// are worked into the table, so that a byte is one load.
//
// Bytes that occur in no string are one class, and so are the two cases of a letter if case is ignored; a row of the
// table has an entry per class, which keeps small sets of strings in the first level cache.
type automaton struct {
	classes [256]uint8 // 0: in no string
	next    []int32    // row of the next state, by row of the state and class; accept in place of a state that ends a string
	start   [256]bool  // bytes that leave the first state
}

// accept is where a string ends. The text after it is searched anew, so no more need be known.
const accept = -1

func newAutomaton(strings []string, ignoreCase bool) *automaton {
	a := &automaton{}
	width := 1
	for _, s := range strings {
		for i := range len(s) {
			c := fold(s[i], ignoreCase)
			if a.classes[c] == 0 && width < 256 {
				a.classes[c] = uint8(width)
				width++
			}
		}
	}
	if ignoreCase {
		for c := byte('A'); c <= 'Z'; c++ {
			a.classes[c] = a.classes[c+'a'-'A']
		}
	}
	a.build(strings, ignoreCase, int32(width))
	for c := range a.start {
		a.start[c] = a.next[a.classes[c]] != 0
	}
	return a
}

func fold(c byte, ignoreCase bool) byte {
	if ignoreCase && 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// build makes the tree of the strings, and then, level by level, gives each state the transitions of its longest proper
// suffix that is a state where it has none of its own.
func (a *automaton) build(strings []string, ignoreCase bool, width int32) {
	a.next = make([]int32, width)
	for _, s := range strings {
		row := int32(0)
		for i := range len(s) {
			k := row + int32(a.classes[fold(s[i], ignoreCase)])
			if a.next[k] == accept {
				break // a shorter string ends here
			}
			if i == len(s)-1 {
				a.next[k] = accept
				break
			}
			if a.next[k] == 0 {
				a.next[k] = int32(len(a.next))
				a.next = append(a.next, make([]int32, width)...)
			}
			row = a.next[k]
		}
	}
	type state struct{ row, suffix int32 }
	var queue []state
	for _, to := range a.next[:width] {
		if to > 0 {
			queue = append(queue, state{row: to})
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for c := range width {
			own, onSuffix := &a.next[s.row+c], a.next[s.suffix+c]
			if *own > 0 && onSuffix != accept {
				queue = append(queue, state{*own, onSuffix})
			} else if *own == 0 || onSuffix == accept {
				*own = onSuffix
			}
		}
	}
}

func (a *automaton) find(text []byte) int {
	row := int32(0)
	for i := 0; i < len(text); i++ {
		if row == 0 {
			for i < len(text) && !a.start[text[i]] {
				i++
			}
			if i == len(text) {
				return -1
			}
		}
		if row = a.next[row+int32(a.classes[text[i]])]; row == accept {
			return i + 1
		}
	}
	return -1
}
