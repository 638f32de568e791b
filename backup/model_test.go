package backup

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// partitionModel is what a partition must look like: the state as a map, as a worker would see it after a restart.
type partitionModel struct {
	t     *rapid.T
	store *flakyStore
	epoch uint64
	p     *Partition

	state map[string]int
	done  map[uint64]uint64 // committed position of each channel
	next  map[uint64]uint64 // next sequence of each channel
	log   []LogEntry
}

func TestPartitionAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &partitionModel{
			t: t, store: &flakyStore{Store: NewMemory()},
			state: map[string]int{}, done: map[uint64]uint64{}, next: map[uint64]uint64{},
		}
		m.restart()
		t.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) {},
			"part":    func(t *rapid.T) { m.commit(t, false) },
			"part2":   func(t *rapid.T) { m.commit(t, false) },
			"whole":   func(t *rapid.T) { m.commit(t, true) },
			"fail":    m.fail,
			"log":     m.append,
			"restart": func(*rapid.T) { m.restart() },
		})
		m.restart()
	})
}

// restart is a new worker that takes over: what it finds must be the model.
func (m *partitionModel) restart() {
	old := m.p
	m.epoch++
	m.p = OpenPartition(m.store, testKey, m.epoch)
	r, err := m.p.Load()
	require.NoError(m.t, err)
	require.Empty(m.t, r.Damaged)
	require.Equal(m.t, m.state, replay(m.t, r))
	found := map[uint64]uint64{}
	for _, in := range r.Inputs {
		found[in.Channel] = in.Seq
	}
	if r.Found {
		require.Equal(m.t, m.done, found)
	}
	m.checkLog()
	if old != nil {
		require.ErrorIs(m.t, commitWait(old, part("zombie", 0)), ErrFenced)
	}
}

// replay rebuilds the map the way an operator does.
func replay(t require.TestingT, r *Restored) map[string]int {
	state := map[string]int{}
	var buf []byte
	for {
		c, err := r.Chunks()
		if err == io.EOF {
			return state
		}
		require.NoError(t, err)
		if buf = append(buf, c.Data...); c.End {
			require.NoError(t, json.Unmarshal(buf, &state))
			buf = buf[:0]
		}
	}
}

func (m *partitionModel) checkLog() {
	want := []LogEntry{}
	for _, e := range m.log {
		if e.First+uint64(e.Count) > m.done[e.Channel] {
			want = append(want, e)
		}
	}
	got := []LogEntry{}
	require.NoError(m.t, m.p.ScanLog(func(e LogEntry) error {
		e.Items = append([]byte(nil), e.Items...)
		got = append(got, e)
		return nil
	}))
	require.Equal(m.t, want, got)
}

// draw makes a commit and what the model is after it. The first commit in a row may be large enough for several batches.
func (m *partitionModel) draw(t *rapid.T, isWhole bool) (*Commit, map[string]int, map[uint64]uint64) {
	state, done := maps.Clone(m.state), maps.Clone(m.done)
	changed := rapid.MapOfN(rapid.StringMatching(`[a-f]{1,2}`), rapid.Int(), 0, 5).Draw(t, "changed")
	maps.Copy(state, changed)
	if isWhole {
		changed = state
	}
	elements, err := json.Marshal(changed)
	require.NoError(t, err)
	for range rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 3}).Draw(t, "blank pieces") {
		elements = append(elements, blanks...)
	}
	c := &Commit{Whole: isWhole, Elements: elements}
	for _, channel := range slices.Sorted(maps.Keys(m.next)) { // in one order, so that a failure can be reproduced
		done[channel] = rapid.Uint64Range(done[channel], m.next[channel]).Draw(t, "position")
	}
	for channel, seq := range done {
		c.Inputs = append(c.Inputs, Input{channel, Position{1, seq}})
	}
	return c, state, done
}

// blanks is white space, which JSON allows anywhere, to make elements large.
var blanks = func() []byte {
	b := make([]byte, pieceBytes-100)
	for i := range b {
		b[i] = ' '
	}
	return b
}()

func (m *partitionModel) commit(t *rapid.T, isWhole bool) {
	c, state, done := m.draw(t, isWhole)
	require.NoError(t, commitWait(m.p, c))
	m.state, m.done = state, done
	m.checkLog()
}

// fail is a commit that the store refuses at one of its batches.
func (m *partitionModel) fail(t *rapid.T) {
	c, _, _ := m.draw(t, rapid.Bool().Draw(t, "whole"))
	failing := rapid.IntRange(0, 3).Draw(t, "failing batch")
	last := (len(c.Elements) - 1) / pieceBytes
	n := 0
	m.store.refuse = func(*Batch) bool { n++; return n > min(failing, last) }
	require.Error(t, commitWait(m.p, c))
	m.store.refuse = nil
	m.checkLog()
}

func (m *partitionModel) append(t *rapid.T) {
	var entries []LogEntry
	for range rapid.IntRange(1, 5).Draw(t, "entries") {
		channel := rapid.Uint64Range(0, 3).Draw(t, "channel")
		e := LogEntry{
			Channel: channel, Epoch: 1, First: m.next[channel], Count: rapid.IntRange(1, 9).Draw(t, "count"),
			Kind: rapid.Uint8().Draw(t, "kind"), Items: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "items"),
		}
		m.next[channel] += uint64(e.Count)
		entries = append(entries, e)
	}
	require.NoError(t, appendWait(m.p, entries...))
	m.log = append(m.log, entries...)
	m.checkLog()
}
