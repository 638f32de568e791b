package wordcount

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/errorbound"
)

// errLongWord cannot come from a text in blocks, but from elements of a backup.
var errLongWord = errors.New("wordcount: word is too long")

// table counts words. It is an open addressing table without pointers, the words one after another in one slice,
// because a Go map of strings costs an allocation per word, three times the memory and a third more time per count, and
// has no place beside the count for what follows.
//
// An addition compares the new count with a limit that lies beside it. Only when a limit is reached does the addition
// cost more, about 17 times for each theta that a word's count grows. A word is *due* for a partial backup when it has
// grown by dueAt since its last durable backup.
//
// Invariants, while tracked:
//  1. due holds exactly the entries that have grown by dueAt or more, each once.
//  2. The limit of an entry that is not due is durable+dueAt; that of a due one is above its count.
//  3. Under Max no due entry has grown by more than peak, and every other by less than dueAt.
//
// Under L1 dueAt is 1, so that due holds all words that a partial backup must write, and the divergence is the
// difference of two totals.
type table struct {
	slots   []uint64 // tag, index of the entry + 1; 0 = free
	entries []entry
	rest    []rest // of each entry
	words   []byte
	total   uint64

	l1       bool
	alpha    float64
	tracked  bool // theta is finite
	dueAt    uint64
	step     uint64 // how much a due entry grows before it is looked at again
	due      []uint32
	peak     uint64
	covered  uint64 // total in the last durable backup; exact only under L1 and after complete backups
	stale    bool   // emptied since the last complete backup
	inFlight flight
}

// entry is what an addition needs of one word: two of them lie in one line of a cache.
type entry struct {
	key
	count, limit uint64
}

// rest is what it does not.
type rest struct {
	durable uint64
	place   uint64 // where the word lies: offset << lengthBits | length
}

// lengthBits is enough for the longest block.
const lengthBits = 24

// flight is the backup in flight.
type flight struct {
	active, complete bool
	unstales         bool // it replaces everything that older ones hold
	total            uint64
	indexes          []uint32 // of the entries in a partial backup
	counts           []uint64 // of those, or of all entries
}

func newTable(norm errorbound.Norm, alpha float64) *table {
	t := &table{l1: norm == errorbound.L1, alpha: alpha}
	t.clear()
	return t
}

// minSlots is the smallest table.
const minSlots = 1 << 10

// clear forgets all words.
func (t *table) clear() {
	t.slots = make([]uint64, minSlots)
	t.entries, t.rest, t.words, t.due = t.entries[:0], t.rest[:0], t.words[:0], t.due[:0]
	t.total, t.peak, t.covered = 0, 0, 0
}

// add adds n to the count of word.
func (t *table) add(word []byte, n uint64) {
	i := t.find(word)
	t.total += n
	e := &t.entries[i]
	if e.count += n; e.count >= e.limit {
		t.attention(i)
	}
}

// find returns the entry of word, making one of count 0 if there is none.
func (t *table) find(word []byte) uint32 {
	k, n := keyOf(word), len(word)
	hash := k.hash(n)
	slots, tag := t.slots, tagOf(hash, n)
	mask := uint64(len(slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		slot := slots[at]
		if slot == 0 {
			return t.insert(at, tag, k, word)
		}
		i := uint32(slot) - 1
		if slot>>32 == tag && t.entries[i].key == k && (n <= inKey || string(t.word(i)) == string(word)) {
			return i
		}
	}
}

func (t *table) word(i uint32) []byte {
	place := t.rest[i].place
	from := place >> lengthBits
	return t.words[from : from+place&(1<<lengthBits-1)]
}

// insert makes an entry for word in a free slot.
func (t *table) insert(at, tag uint64, k key, word []byte) uint32 {
	if len(word) >= 1<<lengthBits {
		panic(errLongWord) // RestoreState and Counts check it
	}
	i := uint32(len(t.entries))
	t.slots[at] = tag<<32 | uint64(i+1)
	e := entry{key: k, limit: math.MaxUint64}
	if t.tracked {
		e.limit = t.dueAt
	}
	t.entries = append(t.entries, e)
	t.rest = append(t.rest, rest{place: uint64(len(t.words))<<lengthBits | uint64(len(word))})
	t.words = append(t.words, word...)
	if len(t.entries) > len(t.slots)/2 {
		t.rehash(2 * len(t.slots))
	}
	return i
}

// rehash makes a table of n slots, a power of two.
func (t *table) rehash(n int) {
	t.slots = make([]uint64, n)
	mask := uint64(n - 1)
	for i := range t.entries {
		length := int(t.rest[i].place & (1<<lengthBits - 1))
		hash := t.entries[i].hash(length)
		at := hash & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = tagOf(hash, length)<<32 | uint64(i+1)
	}
}

// reset makes all counts zero. Words that a backup holds, or may hold, stay until one has been taken that does not.
func (t *table) reset() {
	stored := t.stale || t.inFlight.active
	for i := range t.entries {
		t.entries[i].count = 0
		stored = stored || t.rest[i].durable > 0
	}
	t.total = 0
	t.inFlight.unstales = false
	if t.stale = stored; !stored {
		t.clear()
		return
	}
	t.classify()
}

// setTheta begins the tracking, or ends it if theta is infinite.
func (t *table) setTheta(theta float64) {
	t.tracked = !math.IsInf(theta, 1)
	// What a partial backup leaves must let one more item pass below theta.
	room := max(0, min(theta/2, theta-t.alpha))
	t.dueAt, t.step = toCount(room)+1, max(1, toCount((theta-room)/16))
	if t.l1 {
		t.dueAt, t.step = 1, math.MaxUint64/4 // looked at once
	}
	t.classify()
}

// toCount rounds down.
func toCount(x float64) uint64 {
	if !(x < 1<<62) { // NaN is a theta of no use and counts as infinite here; the runtime does not allow it
		return 1 << 62
	}
	return uint64(max(x, 0))
}

// attention is called when the count of entry i has reached its limit.
func (t *table) attention(i uint32) {
	e, durable := &t.entries[i], t.rest[i].durable
	if e.limit == durable+t.dueAt {
		t.due = append(t.due, i)
	}
	e.limit = e.count + t.step
	t.peak = max(t.peak, e.limit-1-durable)
}

// classify makes due and the limits anew.
func (t *table) classify() {
	t.due, t.peak = t.due[:0], 0
	for i := range t.entries {
		e := &t.entries[i]
		e.limit = math.MaxUint64
		if t.tracked {
			t.place(uint32(i))
		}
	}
}

// place sets the limit of an entry that is not in due, and puts it there if it should be. After a reset a count may be
// below the durable one; the table is stale then, and its divergence infinite.
func (t *table) place(i uint32) {
	e := &t.entries[i]
	e.limit = t.rest[i].durable + t.dueAt
	if e.count >= e.limit {
		t.attention(i)
	}
}

// divergence is an upper bound, in constant time; see state.Counters.
func (t *table) divergence() float64 {
	switch {
	case !t.tracked || t.stale:
		return math.Inf(1)
	case t.l1:
		return float64(t.total - t.covered)
	case len(t.due) > 0:
		return float64(t.peak)
	case t.total != t.covered:
		return float64(t.dueAt - 1)
	}
	return 0
}

// counted is a word with its hash, to be ordered.
type counted struct {
	hash  uint64
	index uint32
}

// byHash returns all words that were counted by their hashes, in the same order for the same counts.
func (t *table) byHash() []counted {
	list := make([]counted, 0, len(t.entries))
	for i := range t.entries {
		if t.entries[i].count > 0 {
			list = append(list, counted{xxhash.Sum64(t.word(uint32(i))), uint32(i)})
		}
	}
	slices.SortFunc(list, func(a, b counted) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return bytes.Compare(t.word(a.index), t.word(b.index))
	})
	return list
}

// ranking is a word to be ranked: its count, and how it begins, as a number that is ordered as words are.
type ranking struct {
	count, begins uint64
	index         uint32
}

// ranked returns the top most frequent words, all if top is 0, most frequent first and by word where they are equal.
func (t *table) ranked(top int) []ranking {
	list := make([]ranking, 0, len(t.entries))
	for i := range t.entries {
		if count := t.entries[i].count; count > 0 {
			var begins [8]byte
			copy(begins[:], t.word(uint32(i)))
			list = append(list, ranking{count, binary.BigEndian.Uint64(begins[:]), uint32(i)})
		}
	}
	slices.SortFunc(list, func(a, b ranking) int {
		switch {
		case a.count != b.count:
			return cmp.Compare(b.count, a.count)
		case a.begins != b.begins:
			return cmp.Compare(a.begins, b.begins)
		}
		return bytes.Compare(t.word(a.index), t.word(b.index))
	})
	if top > 0 {
		list = list[:min(top, len(list))]
	}
	return list
}

// compact forgets words that are neither counted nor in a backup once they are the larger part.
func (t *table) compact() {
	gone := 0
	for i := range t.entries {
		if t.gone(i) {
			gone++
		}
	}
	if gone <= len(t.entries)/2 {
		return
	}
	words := make([]byte, 0, len(t.words))
	kept := 0 // never ahead of i
	for i := range t.entries {
		if t.gone(i) {
			continue
		}
		word := t.word(uint32(i))
		t.entries[kept] = t.entries[i]
		t.rest[kept] = rest{t.rest[i].durable, uint64(len(words))<<lengthBits | uint64(len(word))}
		words = append(words, word...)
		kept++
	}
	t.entries, t.rest, t.words = t.entries[:kept], t.rest[:kept], words
	t.rehash(max(minSlots, 1<<bits.Len(uint(2*kept))))
}

func (t *table) gone(i int) bool { return t.entries[i].count == 0 && t.rest[i].durable == 0 }
