package join

import "math/bits"

// line is the rows of one key in one table, by time; rows of the same time are in the order in which they came. One input
// may be far ahead of the other, so that of many rows only some in the middle are partners of one that comes: in a slice
// they are found by bisection, in a chain by walking past all others.
//
// Invariant: the times in list[first:] ascend. What is before first is gone.
type line struct {
	list  []moment
	first int
}

// moment is a row of a line.
type moment struct {
	time int64
	slot int32
}

// len returns the number of rows.
func (l *line) len() int { return len(l.list) - l.first }

// insert adds a row. It costs time in proportion to the rows that are later.
func (l *line) insert(time int64, slot int32, s *spares) {
	if len(l.list) == cap(l.list) {
		l.grow(s)
	}
	l.list = append(l.list, moment{time, slot})
	k := len(l.list) - 1
	for ; k > l.first && l.list[k-1].time > time; k-- {
		l.list[k] = l.list[k-1]
	}
	l.list[k] = moment{time, slot}
}

// remove takes out a row, which must be there: at once if it is the first, as those that leave are, else in time
// proportional to the rows that are later. Rows before it stay where they are.
func (l *line) remove(time int64, slot int32) {
	k := l.first
	if l.list[k].slot != slot {
		k, _ = l.between(time, time)
		for l.list[k].slot != slot {
			k++
		}
	}
	if k == l.first {
		if l.first++; l.first == len(l.list) {
			l.list, l.first = l.list[:0], 0
		}
		return
	}
	l.list = append(l.list[:k], l.list[k+1:]...)
}

// between returns the part of list whose times are at least from and at most to.
func (l *line) between(from, to int64) (start, end int) {
	start, end = l.first, len(l.list)
	for start < end {
		if mid := int(uint(start+end) / 2); l.list[mid].time < from {
			start = mid + 1
		} else {
			end = mid
		}
	}
	for end < len(l.list) && l.list[end].time <= to { // mostly few: they are the answer
		end++
	}
	return start, end
}

// grow makes room for a row: what is gone makes some, or there is a larger list.
func (l *line) grow(s *spares) {
	if l.first > 0 && 2*l.first >= len(l.list) {
		l.list, l.first = l.list[:copy(l.list, l.list[l.first:])], 0
		return
	}
	larger := append(s.take(max(shortList, 2*cap(l.list))), l.list[l.first:]...)
	s.give(l.list)
	l.list, l.first = larger, 0
}

// shortList is the capacity of the shortest list.
const shortList = 2

// release forgets the line, which is empty.
func (l *line) release(s *spares) {
	s.give(l.list)
	*l = line{}
}

// spares are lists that lines have outgrown, by the logarithm of their capacity. Most keys come and go with few rows;
// their lists go round. Longer ones than maxSpare are left to the garbage collector.
type spares [maxSpare + 1][][]moment

const maxSpare = 8

// take returns an empty list of a capacity that is a power of two.
func (s *spares) take(capacity int) []moment {
	k := bits.Len(uint(capacity)) - 1
	if k > maxSpare || len(s[k]) == 0 {
		return make([]moment, 0, capacity)
	}
	last := len(s[k]) - 1
	list := s[k][last]
	s[k] = s[k][:last]
	return list
}

// give takes a list that is not used any more.
//
// A key without rows keeps none: it would hoard what another key needs now.
func (s *spares) give(list []moment) {
	if k := bits.Len(uint(cap(list))) - 1; k >= 0 && k <= maxSpare {
		s[k] = append(s[k], list[:0])
	}
}
