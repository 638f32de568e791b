package backup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var testKey = PartitionKey{Job: "job", Incarnation: "1", Operator: "count", Partition: 3}

// load opens the partition in epoch and loads it.
func load(t testing.TB, s Store, epoch uint64) (*Partition, *Restored) {
	p := OpenPartition(s, testKey, epoch)
	r, err := p.Load()
	require.NoError(t, err)
	return p, r
}

func commitWait(p *Partition, c *Commit) error {
	done := make(chan error, 1)
	p.Commit(c, func(err error) { done <- err })
	return <-done
}

func appendWait(p *Partition, entries ...LogEntry) error {
	done := make(chan error, 1)
	p.AppendLog(entries, func(err error) { done <- err })
	return <-done
}

// part is a commit with elements e and the position seq on channel 7.
func part(e string, seq uint64) *Commit {
	return &Commit{Elements: []byte(e), Inputs: []Input{{Channel: 7, Position: Position{Epoch: 1, Seq: seq}}}}
}

func whole(e string, seq uint64) *Commit {
	c := part(e, seq)
	c.Whole = true
	return c
}

// elements reads all chunks: one string per commit, that of a base in brackets.
func elements(t testing.TB, r *Restored) []string {
	list := []string{}
	var b strings.Builder
	total := 0
	for {
		c, err := r.Chunks()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		total += len(c.Data)
		b.Write(c.Data)
		if !c.End {
			continue
		}
		if c.Whole {
			list = append(list, "["+b.String()+"]")
		} else {
			list = append(list, b.String())
		}
		b.Reset()
	}
	require.Zero(t, b.Len(), "chunks of an unfinished commit")
	require.EqualValues(t, r.Bytes, total)
	return list
}

func TestPartitionStartsWithNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for epoch := range uint64(3) { // a worker that dies before its first commit, again and again
			p, r := load(t, s, epoch)
			require.False(t, r.Found)
			require.Empty(t, r.Damaged)
			require.Empty(t, elements(t, r))
			require.False(t, p.NeedWhole())
		}
	})
}

func TestPartitionRestoresEveryField(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 4)
		c := &Commit{
			Elements: []byte("e"),
			Inputs:   []Input{{Channel: 9, Position: Position{2, 1 << 63}}, {Channel: 0, Position: Position{1 << 40, 3}}},
			Outputs:  []uint64{5, 0, 1 << 62},
			Source:   []byte("offset 12"),
			Closing:  77,
		}
		for _, isWhole := range []bool{true, false} {
			c.Whole = isWhole
			require.NoError(t, commitWait(p, c))
			var r *Restored
			p, r = load(t, s, 4)
			require.True(t, r.Found)
			require.EqualValues(t, 4, r.Epoch)
			require.Equal(t, []Input{c.Inputs[1], c.Inputs[0]}, r.Inputs, "sorted by channel")
			require.Equal(t, c.Outputs, r.Outputs)
			require.Equal(t, c.Source, r.Source)
			require.Equal(t, c.Closing, r.Closing)
		}
		require.NoError(t, commitWait(p, &Commit{}), "fields may all be empty, and replace those before")
		_, r := load(t, s, 5)
		require.Empty(t, r.Inputs)
		require.Empty(t, r.Outputs)
		require.Empty(t, r.Source)
		require.Zero(t, r.Closing)
		require.Equal(t, []string{"[e]", "e"}, elements(t, r))
	})
}

func TestPartitionReplaysDeltasInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		want := []string{"[base]"}
		require.NoError(t, commitWait(p, whole("base", 1)))
		for i := range 700 { // across pages
			e := fmt.Sprintf("d%d", i)
			require.NoError(t, commitWait(p, part(e, uint64(i))))
			want = append(want, e)
		}
		require.NoError(t, commitWait(p, part("", 1000)), "the commit of a position alone")
		p, r := load(t, s, 2)
		require.Equal(t, want, elements(t, r))
		require.EqualValues(t, 1000, r.Inputs[0].Seq)

		require.NoError(t, commitWait(p, part("after", 1001)), "the next worker goes on where the last one stopped")
		_, r = load(t, s, 3)
		require.Equal(t, append(want, "after"), elements(t, r))
	})
}

// The caller may use everything again as soon as Commit or AppendLog returns.
func TestPartitionKeepsNothingOfTheCaller(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		for _, size := range []int{10, 3 * pieceBytes} {
			c := whole(strings.Repeat("a", size), 1)
			c.Source, c.Outputs = []byte("src"), []uint64{1}
			e := []LogEntry{{Channel: 7, Epoch: 1, First: 1, Count: 1, Items: bytes.Repeat([]byte("i"), size)}}
			done := make(chan error, 2)
			p.Commit(c, func(err error) { done <- err })
			p.AppendLog(e, func(err error) { done <- err })
			clear(c.Elements)
			clear(c.Inputs)
			clear(c.Outputs)
			clear(c.Source)
			clear(e[0].Items)
			clear(e)
			require.NoError(t, <-done)
			require.NoError(t, <-done)
			var r *Restored
			p, r = load(t, s, 1)
			require.Equal(t, []string{"[" + strings.Repeat("a", size) + "]"}, elements(t, r))
			require.Equal(t, []Input{{7, Position{1, 1}}}, r.Inputs)
			require.Equal(t, []uint64{1}, r.Outputs)
			require.Equal(t, "src", string(r.Source))
			n := 0
			require.NoError(t, p.ScanLog(func(e LogEntry) error {
				n++
				require.EqualValues(t, 7, e.Channel)
				require.Equal(t, byte('i'), e.Items[0])
				return nil
			}))
			require.Positive(t, n)
		}
	})
}

// What is lent is not copied.
func TestPartitionWritesWhatIsLent(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		for i, size := range []int{10, 5 * pieceBytes} {
			c := whole(strings.Repeat("a", size), 1)
			c.Lent = true
			require.NoError(t, commitWait(p, c))
			require.Nil(t, p.writer.large)
			require.Nil(t, p.writer.elements)
			_, r := load(t, s, uint64(i+1))
			require.Equal(t, []string{"[" + string(c.Elements) + "]"}, elements(t, r))
		}
	})
}

// Commits of positions alone hold no element and still ask for a new base, so that they do not pile up.
func TestPartitionAsksForAWholeCommitAfterManyPositions(t *testing.T) {
	p, _ := load(t, NewMemory(), 1)
	n := 0
	for ; !p.NeedWhole() && n < 10_000; n++ {
		require.NoError(t, commitWait(p, part("", uint64(n))))
	}
	require.InDelta(t, minWholeBytes/deltaRecordBytes, n, 2)
	require.NoError(t, commitWait(p, whole("", uint64(n))))
	require.False(t, p.NeedWhole())
}

func TestPartitionAsksForAWholeCommit(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		base := strings.Repeat("b", minWholeBytes)
		require.NoError(t, commitWait(p, whole(base, 1)))
		small := strings.Repeat("d", minWholeBytes/4)
		for i := range 8 {
			require.NoError(t, commitWait(p, part(small, uint64(i))))
			require.False(t, p.NeedWhole(), "after %d deltas", i+1)
		}
		require.NoError(t, commitWait(p, part("d", 9)))
		require.True(t, p.NeedWhole(), "beyond twice the base")
		p, _ = load(t, s, 2)
		require.True(t, p.NeedWhole(), "after a restart too")
		require.NoError(t, commitWait(p, whole("tiny", 10)))
		require.False(t, p.NeedWhole())
		require.NoError(t, commitWait(p, part(strings.Repeat("d", minWholeBytes), 11)))
		require.False(t, p.NeedWhole(), "1 MiB is always fine")
		require.NoError(t, commitWait(p, part("d", 12)))
		require.True(t, p.NeedWhole())
	})
}

func TestPartitionWritesLargeCommits(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		for i, size := range []int{pieceBytes - 1, pieceBytes, pieceBytes + 1, 5*pieceBytes + 17, MaxBatchBytes * 3} {
			b := make([]byte, size)
			for at := 0; at+8 <= size; at += 8 {
				binary.LittleEndian.PutUint64(b[at:], uint64(at*31+i))
			}
			require.NoError(t, commitWait(p, whole(string(b), 1)))
			require.NoError(t, commitWait(p, part(string(b), 2)))
			require.NoError(t, commitWait(p, part("end", 3)))
			var r *Restored
			p, r = load(t, s, uint64(2+i))
			require.Empty(t, r.Damaged)
			got := elements(t, r)
			require.Len(t, got, 3)
			require.True(t, got[0] == "["+string(b)+"]" && got[1] == string(b) && got[2] == "end", "size %d", size)
		}
	})
}

// Superseded generations go, except for the last one, and nothing else is left behind.
func TestPartitionDeletesOldGenerations(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		for g := range 6 {
			require.NoError(t, commitWait(p, whole(strings.Repeat("b", 3*pieceBytes), 1)))
			for i := range 40 {
				require.NoError(t, commitWait(p, part("d", uint64(i))))
			}
			kinds := countKinds(t, s)
			require.Equal(t, map[byte]int{'m': min(g+1, 2), 'c': 3 * min(g+1, 2), 'd': 40 * min(g+1, 2)}, kinds)
		}
	})
}

// countKinds counts the partition's records by kind.
func countKinds(t testing.TB, s Store) map[byte]int {
	kinds := map[byte]int{}
	prefix := testKey.prefix()
	require.NoError(t, s.Scan(prefix, func(key, _ []byte) error {
		kinds[key[len(prefix)]]++
		return nil
	}))
	return kinds
}

func TestPartitionRefusesZombies(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		old, _ := load(t, s, 1)
		require.NoError(t, commitWait(old, whole("a", 1)))
		p, _ := load(t, s, 2)
		require.ErrorIs(t, commitWait(old, part("zombie", 2)), ErrFenced)
		require.ErrorIs(t, appendWait(old, LogEntry{Channel: 1, Count: 1}), ErrFenced)
		_, err := old.Load()
		require.ErrorIs(t, err, ErrFenced)
		require.NoError(t, commitWait(p, part("b", 3)))
		_, r := load(t, s, 3)
		require.Equal(t, []string{"[a]", "b"}, elements(t, r))
	})
}

// heldStore keeps batches until they are released.
type heldStore struct {
	Store
	held chan func()
}

func (h *heldStore) Apply(b *Batch, done func(error)) {
	h.held <- func() { h.Store.Apply(b, done) }
}

func TestPartitionAllowsOneCommitInFlight(t *testing.T) {
	h := &heldStore{NewMemory(), make(chan func(), 10)}
	p := OpenPartition(h, testKey, 1)
	require.ErrorIs(t, commitWait(p, part("a", 1)), ErrNotLoaded)
	require.ErrorIs(t, appendWait(p, LogEntry{}), ErrNotLoaded)
	require.ErrorIs(t, p.ScanLog(nil), ErrNotLoaded)
	_, err := p.Load()
	require.NoError(t, err)
	first := make(chan error, 1)
	p.Commit(part("a", 1), func(err error) { first <- err })
	require.ErrorIs(t, commitWait(p, part("b", 2)), ErrBusy)
	_, err = p.Load()
	require.ErrorIs(t, err, ErrBusy)
	(<-h.held)()
	require.NoError(t, <-first)

	again := make(chan error, 1)
	p.Commit(part("c", 2), func(err error) {
		require.NoError(t, err)
		p.Commit(part("d", 3), func(err error) { again <- err }) // done may start the next one
	})
	(<-h.held)()
	(<-h.held)()
	require.NoError(t, <-again)
	_, r := load(t, h.Store, 1)
	require.Equal(t, []string{"[a]", "c", "d"}, elements(t, r))
}

func TestPartitionRefusesInvalidUse(t *testing.T) {
	s := NewMemory()
	for _, k := range []PartitionKey{
		{"", "1", "o", 0, 0}, {"j", "", "o", 0, 1}, {"j", "1", "a/b", 0, 2}, {"j", "1", "..", 0, 0}, {"j", "1", "o", -1, 0}, {"j", "1", "o.2", 0, 0},
	} {
		p := OpenPartition(s, k, 1)
		_, err := p.Load()
		require.ErrorIs(t, err, ErrName, "%v", k)
		require.ErrorIs(t, commitWait(p, part("a", 1)), ErrNotLoaded)
	}
	p, _ := load(t, s, 1)
	require.ErrorIs(t, commitWait(p, &Commit{Inputs: []Input{{Channel: 1}, {Channel: 2}, {Channel: 1}}}), ErrInput)
	require.ErrorIs(t, commitWait(p, &Commit{Source: make([]byte, maxStepBytes+1)}), ErrTooLarge)
	require.ErrorIs(t, appendWait(p, LogEntry{Items: make([]byte, MaxLogItems+1)}), ErrTooLarge)
	require.ErrorIs(t, appendWait(p, LogEntry{Count: -1}), ErrTooLarge)
	require.ErrorIs(t, appendWait(p, LogEntry{First: 1<<64 - 1, Count: 2}), ErrTooLarge)
	require.NoError(t, commitWait(p, &Commit{Source: make([]byte, maxStepBytes)}), "the largest allowed")
	require.NoError(t, appendWait(p, LogEntry{Items: make([]byte, MaxLogItems)}, LogEntry{First: 1<<64 - 2, Count: 1}))
}

// discardStore accepts everything at once, so that what is measured is the layer above.
type discardStore struct{ Store }

func (discardStore) Apply(_ *Batch, done func(error)) { done(nil) }

func TestPartitionWritesWithoutAllocating(t *testing.T) {
	p := OpenPartition(discardStore{NewMemory()}, testKey, 1)
	_, err := p.Load()
	require.NoError(t, err)
	c := part(strings.Repeat("e", 1024), 1)
	entries := []LogEntry{{Channel: 7, Epoch: 1, Count: 10, Items: make([]byte, 500)}}
	done := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	step := func() {
		c.Inputs[0].Seq += 10
		entries[0].First += 10
		c.Whole = c.Inputs[0].Seq%1000 == 0
		p.AppendLog(entries, done)
		p.Commit(c, done)
	}
	for range 1000 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(1000, step))
}
