package backup

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// twoGenerations leaves "[one] 1 2" and on top of it "[two] 3 4 5", each base in three chunks.
func twoGenerations(t testing.TB, s Store) (p *Partition, one, two []string) {
	return twoGenerationsIn(t, s, 1)
}

func twoGenerationsIn(t testing.TB, s Store, epoch uint64) (p *Partition, one, two []string) {
	p, _ = load(t, s, epoch)
	bases := []string{strings.Repeat("1", 3*pieceBytes), strings.Repeat("2", 3*pieceBytes)}
	require.NoError(t, commitWait(p, whole(bases[0], 10)))
	require.NoError(t, commitWait(p, part("1", 11)))
	require.NoError(t, commitWait(p, part("2", 12)))
	require.NoError(t, commitWait(p, whole(bases[1], 20)))
	for i, e := range []string{"3", "4", "5"} {
		require.NoError(t, commitWait(p, part(e, uint64(21+i))))
	}
	return p, []string{"[" + bases[0] + "]", "1", "2"}, []string{"[" + bases[1] + "]", "3", "4", "5"}
}

// Whatever happens to one record of the newest generation's base, the generation before takes over, with its last
// delta; whatever happens to a delta, what came before it counts. It is named, and the next worker can go on for good.
func TestLoadSkipsDamage(t *testing.T) {
	key := func(p *Partition, kind byte, numbers ...uint64) []byte {
		return appendKey(nil, p.prefix, kind, numbers...)
	}
	cases := []struct {
		name   string
		key    func(p *Partition) []byte
		base   bool // the whole generation is lost
		deltas int  // otherwise, how many of its deltas remain
	}{
		{"manifest", func(p *Partition) []byte { return key(p, kindManifest, 2) }, true, 0},
		{"first chunk", func(p *Partition) []byte { return key(p, kindChunk, 2, 0) }, true, 0},
		{"last chunk", func(p *Partition) []byte { return key(p, kindChunk, 2, 2) }, true, 0},
		{"first delta", func(p *Partition) []byte { return key(p, kindDelta, 2, 0) }, false, 0},
		{"second delta", func(p *Partition) []byte { return key(p, kindDelta, 2, 1) }, false, 1},
	}
	harms := map[string]func(t testing.TB, s Store, key []byte){
		"flip": flip,
		"drop": remove,
		"cut":  func(t testing.TB, s Store, key []byte) { put(t, s, key, []byte{recordVersion}) },
	}
	eachStore(t, func(t *testing.T, s Store) {
		epoch := uint64(1)
		for _, c := range cases {
			for harmName, harm := range harms {
				name := c.name + "/" + harmName
				require.NoError(t, deleteKeys(s, "vandal", 0, testKey.prefix(), nil))
				require.NoError(t, s.Fence(testKey.Owner(), epoch))
				p, one, two := twoGenerationsIn(t, s, epoch)
				harm(t, s, c.key(p))

				want, seq := one, uint64(12)
				if !c.base {
					want, seq = two[:1+c.deltas], uint64(20+c.deltas)
				}
				p, r := load(t, s, epoch+1)
				require.Equal(t, want, elements(t, r), name)
				require.Equal(t, seq, r.Inputs[0].Seq, name)
				if name != "manifest/drop" { // which leaves what a commit cut short leaves
					require.NotEmpty(t, r.Damaged, name)
					require.ErrorIs(t, r.Damaged[0], ErrDamaged, name)
					require.True(t, p.NeedWhole(), name)
				}

				require.NoError(t, commitWait(p, part("more", seq+1)))
				require.NoError(t, commitWait(p, part("yet more", seq+2)))
				p, r = load(t, s, epoch+2)
				require.Empty(t, r.Damaged, name)
				require.Equal(t, append(want[:len(want):len(want)], "more", "yet more"), elements(t, r), name)
				require.NoError(t, commitWait(p, whole("new", 100)))
				_, r = load(t, s, epoch+3)
				require.Empty(t, r.Damaged, name)
				require.Equal(t, []string{"[new]"}, elements(t, r), name)
				epoch += 4
			}
		}
	})
}

// With both generations damaged there is nothing, loudly, and the worker can start anew.
func TestLoadWithEverythingDamaged(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _, _ := twoGenerations(t, s)
		flip(t, s, appendKey(nil, p.prefix, kindChunk, 1, 1))
		flip(t, s, appendKey(nil, p.prefix, kindManifest, 2))
		p, r := load(t, s, 2)
		require.False(t, r.Found)
		require.Len(t, r.Damaged, 2)
		require.NoError(t, commitWait(p, whole("anew", 1)))
		_, r = load(t, s, 3)
		require.Equal(t, []string{"[anew]"}, elements(t, r))
		require.Equal(t, map[byte]int{'m': 1, 'c': 1}, countKinds(t, s))
	})
}

// A chunk of another generation or of another place is damage although its checksum is right.
func TestLoadNoticesExchangedRecords(t *testing.T) {
	s := NewMemory()
	p, one, _ := twoGenerations(t, s)
	var v []byte
	require.NoError(t, s.Scan(appendKey(nil, p.prefix, kindChunk, 2, 0), func(_, value []byte) error {
		v = append(v, value...)
		return nil
	}))
	put(t, s, appendKey(nil, p.prefix, kindChunk, 2, 1), v)
	_, r := load(t, s, 2)
	require.Equal(t, one, elements(t, r))
	require.ErrorContains(t, r.Damaged[0], "another chunk")

	s = NewMemory()
	p, one, _ = twoGenerations(t, s)
	put(t, s, appendKey(nil, p.prefix, kindChunk, 2, 1), appendChunk(nil, 2, 1, make([]byte, pieceBytes)))
	_, r = load(t, s, 2)
	require.Equal(t, one, elements(t, r))
	require.ErrorContains(t, r.Damaged[0], "does not match its chunks")
}

// Deltas that a dead worker left beyond the point where its successor went on must never come back.
func TestLoadNeverPicksUpStaleDeltas(t *testing.T) {
	for _, keepStale := range []bool{false, true} {
		s := NewMemory()
		p, _ := load(t, s, 1)
		require.NoError(t, commitWait(p, whole("base", 0)))
		for i := range 6 {
			require.NoError(t, commitWait(p, part(fmt.Sprint(i), uint64(i))))
		}
		stale := map[string][]byte{}
		require.NoError(t, s.Scan(appendKey(nil, p.prefix, kindDelta), func(k, v []byte) error {
			stale[string(k)] = append([]byte(nil), v...)
			return nil
		}))
		remove(t, s, appendKey(nil, p.prefix, kindDelta, 1, 2))
		p, r := load(t, s, 2)
		require.Equal(t, []string{"[base]", "0", "1"}, elements(t, r))
		require.Equal(t, 2, countKinds(t, s)['d'], "Load deletes them")
		require.NoError(t, commitWait(p, part("new", 50)))
		if keepStale { // as if that deletion had been lost
			for n := uint64(3); n < 6; n++ {
				k := appendKey(nil, p.prefix, kindDelta, 1, n)
				put(t, s, k, stale[string(k)])
			}
		}
		_, r = load(t, s, 3)
		require.Equal(t, []string{"[base]", "0", "1", "new"}, elements(t, r))
		require.Empty(t, r.Damaged)
	}
}

// A commit may fail at each of its batches, reported rightly or after it was written: what was acknowledged stays, a
// torn commit is never seen, and the next one works.
func TestCommitFailingAtEachBatch(t *testing.T) {
	large := strings.Repeat("L", 3*pieceBytes+5)
	shorter := strings.Repeat("S", pieceBytes+5)
	for _, after := range []bool{false, true} {
		for _, isWhole := range []bool{false, true} {
			for failing := range 4 {
				name := fmt.Sprintf("after=%t whole=%t batch=%d", after, isWhole, failing)
				f := &flakyStore{Store: NewMemory(), after: after}
				p, _ := load(t, f, 1)
				require.NoError(t, commitWait(p, whole("base", 1)))
				require.NoError(t, commitWait(p, part("delta", 2)))
				n := 0
				f.refuse = func(*Batch) bool { n++; return n-1 == failing }
				c := part(large, 3)
				c.Whole = isWhole
				require.ErrorIs(t, commitWait(p, c), errInjected, name)
				f.refuse = nil

				_, r := load(t, copyOf(t, f), 2)
				require.Empty(t, r.Damaged, name)
				want := []string{"[base]", "delta"}
				if after && failing == 3 { // it was written, only the answer was lost
					want = append(want, large)
					if isWhole {
						want = []string{"[" + large + "]"}
					}
				}
				require.True(t, fmt.Sprint(want) == fmt.Sprint(elements(t, r)), name)

				require.NoError(t, commitWait(p, &Commit{Whole: isWhole, Elements: []byte(shorter)}), name)
				require.NoError(t, commitWait(p, part("end", 4)), name)
				_, r = load(t, f, 2)
				require.Empty(t, r.Damaged, name)
				want = []string{"[base]", "delta", shorter, "end"}
				if isWhole {
					want = []string{"[" + shorter + "]", "end"}
				}
				require.True(t, fmt.Sprint(want) == fmt.Sprint(elements(t, r)), name)
			}
		}
	}
}

// A whole commit that was written but reported as failed must not make the next attempt, cut short by a crash, look like
// a damaged generation: it goes first (P1).
func TestWholeCommitAfterAMisreportedOne(t *testing.T) {
	f := &flakyStore{Store: NewMemory(), after: true}
	p, _ := load(t, f, 1)
	require.NoError(t, commitWait(p, whole("base", 1)))
	refuseAt(f, 3)
	require.ErrorIs(t, commitWait(p, whole(strings.Repeat("a", 4*pieceBytes), 2)), errInjected)
	f.after = false
	refuseAt(f, 2)
	require.ErrorIs(t, commitWait(p, whole(strings.Repeat("b", 4*pieceBytes), 3)), errInjected)
	_, r := load(t, copyOf(t, f), 2)
	require.Empty(t, r.Damaged)
	require.Equal(t, []string{"[base]"}, elements(t, r))
}

// refuseAt makes f fail at the batch of that number from now on.
func refuseAt(f *flakyStore, number int) {
	n := 0
	f.refuse = func(*Batch) bool { n++; return n > number }
}

// Nothing that a failed commit wrote stays for ever: the commits after it delete it, or the next Load.
func TestFailedCommitsLeaveNoGarbage(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, isWhole := range []bool{false, true} {
			f := &flakyStore{Store: NewMemory()}
			p, _ := load(t, f, 1)
			require.NoError(t, commitWait(p, whole("base", 1)))
			refuseAt(f, 4)
			c := part(strings.Repeat("L", 5*pieceBytes), 2)
			c.Whole = isWhole
			require.ErrorIs(t, commitWait(p, c), errInjected)
			f.refuse = nil
			if restart {
				p, _ = load(t, f, 2)
				require.Equal(t, map[byte]int{'m': 1, 'c': 1}, countKinds(t, f))
			}
			for range 3 { // generations, so that all of the first one's is deleted
				require.NoError(t, commitWait(p, whole("next", 3)))
			}
			require.NoError(t, commitWait(p, part("", 4)))
			require.Equal(t, map[byte]int{'m': 2, 'c': 2, 'd': 1}, countKinds(t, f))
		}
	}
}

// copyOf is what another process would find in s now.
func copyOf(t testing.TB, s Store) Store {
	c := NewMemory()
	require.NoError(t, s.Scan(nil, func(k, v []byte) error {
		put(t, c, append([]byte(nil), k...), append([]byte(nil), v...))
		return nil
	}))
	return c
}

// Damage that appears between Load and the reading of the chunks is an error, and stays one.
func TestChunksReportDamage(t *testing.T) {
	for _, kind := range []byte{kindChunk, kindDelta} {
		s := NewMemory()
		twoGenerations(t, s)
		p, r := load(t, s, 2)
		remove(t, s, appendKey(nil, p.prefix, kind, 2, 1))
		var err error
		for err == nil {
			_, err = r.Chunks()
		}
		require.ErrorIs(t, err, ErrDamaged)
		_, again := r.Chunks()
		require.Equal(t, err, again)
	}
}

// Restoring a state far larger than a page needs memory for pages only. It is measured on the memory store, because a
// database on disk may be compacting meanwhile, with memory of its own that has nothing to do with restoring.
func TestRestoreInBoundedMemory(t *testing.T) {
	s := NewMemory()
	p, _ := load(t, s, 1)
	func() {
		base := make([]byte, 48<<20)
		require.NoError(t, commitWait(p, &Commit{Whole: true, Elements: base}))
		for range 16 {
			require.NoError(t, commitWait(p, &Commit{Elements: base[:1<<20]}))
		}
	}()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most := heap(), int64(0)
	_, r := load(t, s, 2)
	total := 0
	for {
		c, err := r.Chunks()
		if err != nil {
			break
		}
		if total>>23 != (total+len(c.Data))>>23 {
			most = max(most, heap()-before)
		}
		total += len(c.Data)
	}
	require.Equal(t, 64<<20, total)
	require.Less(t, most, int64(8<<20))
}

// countingStore counts what scans deliver.
type countingStore struct {
	Store
	keys int
}

func (s *countingStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return s.Store.Scan(prefix, func(key, value []byte) error {
		s.keys++
		return fn(key, value)
	})
}

// A recovery reads each record twice, to check it and to deliver it, however many there are: from another process each costs as
// much as it is long.
func TestRestoreReadsEachRecordTwice(t *testing.T) {
	s := &countingStore{Store: NewMemory()}
	p, _ := load(t, s, 1)
	pieces, deltas := thorough.Number(60, 300), thorough.Number(200, 700)
	require.NoError(t, commitWait(p, whole(strings.Repeat("b", pieces*pieceBytes), 1)))
	for i := range deltas {
		require.NoError(t, commitWait(p, part("d", uint64(i))))
	}
	s.keys = 0
	_, r := load(t, s, 2)
	require.Len(t, elements(t, r), 1+deltas)
	require.Less(t, s.keys, 2*(pieces+deltas)+10)
}

// Who does not read the elements to their end says so, and then holds nothing of the store.
func TestRestoreThatIsStopped(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		_, _, two := twoGenerations(t, s)
		_, r := load(t, s, 2)
		_, err := r.Chunks()
		require.NoError(t, err)
		r.Stop()
		for range 2 {
			_, err = r.Chunks()
			require.ErrorContains(t, err, "stopped")
			r.Stop()
		}
		_, r = load(t, s, 3)
		require.Equal(t, two, elements(t, r))
		r.Stop()
		_, err = r.Chunks()
		require.Equal(t, io.EOF, err)
		_, r = load(t, s, 4)
		r.Stop()
		_, err = r.Chunks()
		require.ErrorContains(t, err, "stopped")
		require.NoError(t, s.Close(), "no scan is under way")
	})
}
