package backup

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// Every Marker keeps the newest mark of each owner, and none of who was fenced.
func TestMarks(t *testing.T) {
	for name, open := range map[string]func() Store{
		"memory": NewMemory,
		"badger": func() Store { return openTestBadger(t, t.TempDir(), BadgerOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			m := s.(Marker)
			none, err := m.ReadMark("j/i/op/0")
			require.NoError(t, err)
			require.Nil(t, none)
			for n := range 5 {
				for _, owner := range []string{"j/i/op/0", "j/i/op/1", "j/k/op/0"} {
					ok, err := m.Mark(owner, 1, fmt.Append(nil, owner, n))
					require.NoError(t, err)
					require.True(t, ok)
				}
			}
			for _, owner := range []string{"j/i/op/0", "j/i/op/1", "j/k/op/0"} {
				got, err := m.ReadMark(owner)
				require.NoError(t, err)
				require.Equal(t, owner+"4", string(got))
			}

			ok, err := m.Mark("j/i/op/0", 1, make([]byte, MaxMarkBytes+1))
			require.NoError(t, err)
			require.False(t, ok, "too long")
			_, err = m.Mark("no/../name", 1, nil)
			require.ErrorIs(t, err, ErrName)
			require.NoError(t, s.Fence("j/i/op/0", 2))
			_, err = m.Mark("j/i/op/0", 1, []byte("zombie"))
			require.ErrorIs(t, err, ErrFenced)

			require.NoError(t, m.DropMarks("j/i/"))
			for owner, want := range map[string]string{"j/i/op/0": "", "j/i/op/1": "", "j/k/op/0": "j/k/op/04"} {
				got, err := m.ReadMark(owner)
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			}
			ok, err = m.Mark("j/i/op/2", 1, nil) // in the place of one that was dropped
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, s.Close())
			_, err = m.Mark("j/i/op/2", 1, nil)
			require.ErrorIs(t, err, ErrClosed)
			_, err = m.ReadMark("j/i/op/2")
			require.ErrorIs(t, err, ErrClosed)
		})
	}
}

// A mark is there when the directory is opened again; if writing one was interrupted, the one before it is.
func TestMarksOnDisk(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range thorough.Number(15, 40) {
		s := openTestBadger(t, dir, BadgerOptions{})
		m := s.(Marker)
		for _, owner := range []string{"j/i/op/0", "j/i/op/1"} {
			got, err := m.ReadMark(owner)
			require.NoError(t, err)
			if round > 0 {
				require.Contains(t, []string{owner + fmt.Sprint(round-1), owner + fmt.Sprint(round-1, "torn")}, string(got))
			}
			for _, what := range []string{fmt.Sprint(round), fmt.Sprint(round, "torn")} {
				ok, err := m.Mark(owner, 1, []byte(owner+what))
				require.NoError(t, err)
				require.True(t, ok)
			}
		}
		require.NoError(t, s.Close())

		path := filepath.Join(dir, "backup", markFileName)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, b, 2*markSlotBytes)
		for page := range 2 { // the newest mark of each was half written
			number, _ := newestMark(b[page*markSlotBytes:][:markSlotBytes])
			place := markFirst
			if number%2 == 0 {
				place = markSecond
			}
			b[page*markSlotBytes+place+rng.IntN(20)] ^= 0x55
		}
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
}

// A damaged name makes a slot free; a file that was cut goes on where it ends.
func TestDamagedMarkFiles(t *testing.T) {
	for at := 0; at < markSlotBytes; at += thorough.Number(1021, 257) {
		dir := t.TempDir()
		s := openTestBadger(t, dir, BadgerOptions{})
		_, err := s.(Marker).Mark("j/i/op/0", 1, []byte("mark"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		path := filepath.Join(dir, "backup", markFileName)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		damaged := append([]byte(nil), b...)
		damaged[at] ^= 0xff
		for _, content := range [][]byte{damaged, b[:at]} {
			require.NoError(t, os.WriteFile(path, content, 0o600))
			s = openTestBadger(t, dir, BadgerOptions{})
			got, err := s.(Marker).ReadMark("j/i/op/0")
			require.NoError(t, err)
			require.Contains(t, []string{"", "mark"}, string(got))
			_, err = s.(Marker).Mark("j/i/op/0", 1, []byte("again"))
			require.NoError(t, err)
			got, err = s.(Marker).ReadMark("j/i/op/0")
			require.NoError(t, err)
			require.Equal(t, "again", string(got))
			require.NoError(t, s.Close())
		}
	}
}

// With Sync nothing is promised that a power cut could take.
func TestNoMarksWithSync(t *testing.T) {
	s := openTestBadger(t, t.TempDir(), BadgerOptions{Sync: true})
	ok, err := s.(Marker).Mark("j/i/op/0", 1, nil)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, s.Close())
}

// Mark moves the positions of a partition on without its state.
func TestPartitionMark(t *testing.T) {
	s := NewMemory()
	p, _ := load(t, s, 1)
	mark := func(inputs ...Input) bool {
		t.Helper()
		ok, err := p.Mark(inputs)
		require.NoError(t, err)
		return ok
	}
	require.False(t, mark(at(1, 1, 5)), "there is no commit yet")
	require.NoError(t, commitWait(p, &Commit{Whole: true, Elements: []byte("a"), Inputs: []Input{at(1, 1, 10), at(2, 1, 10)}, Closing: 4}))
	require.True(t, mark(at(1, 1, 20), at(2, 2, 3)))

	p, r := load(t, s, 2)
	require.Equal(t, []Input{at(1, 1, 20), at(2, 2, 3)}, r.Inputs)
	require.Equal(t, []string{"[a]"}, elements(t, r))
	require.EqualValues(t, 4, r.Closing)

	require.NoError(t, commitWait(p, &Commit{Elements: []byte("b"), Inputs: []Input{at(1, 1, 30), at(2, 2, 30)}}))
	_, r = load(t, s, 3)
	require.Equal(t, []Input{at(1, 1, 30), at(2, 2, 30)}, r.Inputs, "the commit is later")

	_, err := p.Mark(nil)
	require.ErrorIs(t, err, ErrFenced)
	_, err = OpenPartition(s, testKey, 4).Mark(nil)
	require.ErrorIs(t, err, ErrNotLoaded)
}

// A mark that was made after a commit that is gone, as after a power cut, says nothing.
func TestMarkOfACommitThatIsGone(t *testing.T) {
	s := NewMemory()
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, &Commit{Whole: true, Elements: []byte("a"), Inputs: []Input{at(1, 1, 10)}}))
	later := appendMark(nil, &mark{epoch: 1, generation: 1, deltas: 1, inputs: []Input{at(1, 1, 20)}})
	_, err := s.(Marker).Mark(testKey.Owner(), 1, later)
	require.NoError(t, err)
	p, r := load(t, s, 2)
	require.Equal(t, []Input{at(1, 1, 10)}, r.Inputs)
	require.NoError(t, commitWait(p, &Commit{Elements: []byte("b"), Inputs: []Input{at(1, 1, 11)}}))
	p, r = load(t, s, 3)
	require.Equal(t, []Input{at(1, 1, 11)}, r.Inputs, "another commit has got the number that the mark names")
	require.NoError(t, commitWait(p, &Commit{Elements: []byte("c"), Inputs: []Input{at(1, 1, 12)}}))

	_, err = s.(Marker).Mark(testKey.Owner(), 3, later[:len(later)-1])
	require.NoError(t, err)
	_, r = load(t, s, 4)
	require.Equal(t, []Input{at(1, 1, 12)}, r.Inputs)
	require.ErrorIs(t, r.Damaged[0], ErrDamaged)
}

// What Mark costs, against BenchmarkCommit.
func BenchmarkMark(b *testing.B) {
	s := openTestBadger(b, b.TempDir(), BadgerOptions{})
	p, _ := load(b, s, 1)
	inputs := []Input{at(1, 1, 1), at(2, 1, 1), at(3, 1, 1), at(4, 1, 1)}
	if err := commitWait(p, &Commit{Whole: true, Inputs: inputs}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		inputs[0].Seq++
		if ok, err := p.Mark(inputs); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// A mark whose page has gone from under it is an error, and not the end of the process.
func TestMarkFileIsCutWhileInUse(t *testing.T) {
	dir := t.TempDir()
	s := openTestBadger(t, dir, BadgerOptions{})
	if s.(*badgerStore).marks.mem == nil {
		t.Skip("marks are written here, not mapped")
	}
	_, err := s.(Marker).Mark("j/i/op/0", 1, []byte("one"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(dir, "backup", markFileName), 0))
	_, err = s.(Marker).Mark("j/i/op/0", 1, []byte("two"))
	require.ErrorContains(t, err, "MARKS: ")
	require.ErrorContains(t, err, "the file was cut, or its disk is full")
	require.NoError(t, s.Close())
}
