package copies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	streams "github.com/afstream/afstream/stream"
)

var errDisk = errors.New("disk says no")

// gate is a store in memory that can be made to fail, or to keep everybody waiting.
type gate struct {
	backup.Store
	mu      sync.Mutex
	shut    chan struct{} // closed when it opens again
	err     error
	full    bool           // fails with batches only
	calls   map[string]int // of each method
	fuse    int            // how many batches it takes before it fails; 0 for no end
	scanned int            // entries that a scan hands out before it fails with err
}

func newGate() *gate { return &gate{Store: backup.NewMemory(), calls: map[string]int{}} }

func (g *gate) shutUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// fill makes batches alone fail, or no longer.
func (g *gate) fill(full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full = full
}

// pass waits while the gate is shut.
func (g *gate) pass(method string) error {
	g.mu.Lock()
	g.calls[method]++
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.err
	if method == "apply" && g.full {
		err = errDisk
	}
	if method == "apply" && g.fuse > 0 {
		if g.fuse--; g.fuse == 0 {
			g.err = errDisk
		}
	}
	return err
}

func (g *gate) count(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[method]
}

func (g *gate) Apply(b *backup.Batch, done func(error)) {
	go func() {
		err := g.pass("apply")
		if err == nil {
			err = applyWait(g.Store, b)
		}
		done(err)
	}()
}

func (g *gate) Fence(owner string, epoch uint64) error {
	if err := g.pass("fence"); err != nil {
		return err
	}
	return g.Store.Fence(owner, epoch)
}

func (g *gate) Scan(prefix []byte, fn func(key, value []byte) error) error {
	failing := g.pass("scan")
	g.mu.Lock()
	left := g.scanned
	g.mu.Unlock()
	if failing != nil && left == 0 {
		return failing
	}
	return g.Store.Scan(prefix, func(key, value []byte) error {
		if left--; failing != nil && left < 0 {
			return failing
		}
		return fn(key, value)
	})
}

// bench is a Store over gates.
type bench struct {
	*Store
	gates []*gate

	mu        sync.Mutex
	suspected []string
}

func newBench(t *testing.T, n int) *bench {
	b := &bench{}
	var list []Member
	for i := range n {
		b.gates = append(b.gates, newGate())
		list = append(list, Member{string(rune('a' + i)), b.gates[i]})
	}
	b.Store = New(list, Options{Patience: time.Second, Suspect: func(name string, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.suspected = append(b.suspected, fmt.Sprintf("%s: %v", name, err))
	}})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (b *bench) suspicions() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.suspected)
}

const owner = "j/i/o/1"

func put(epoch uint64, keys ...string) *backup.Batch {
	b := &backup.Batch{Owner: owner, Epoch: epoch}
	for _, k := range keys {
		b.Puts = append(b.Puts, backup.Entry{Key: []byte(prefixOf(owner) + k), Value: []byte("value of " + k)})
	}
	return b
}

// later applies a batch and returns where its outcome will be.
func later(s backup.Store, b *backup.Batch) chan error {
	done := make(chan error, 1)
	s.Apply(b, func(err error) { done <- err })
	return done
}

func keysOf(t *testing.T, s backup.Store) []string {
	n := len(prefixOf(owner))
	keys := []string{}
	for k := range contentsOf(t, s, prefixOf(owner)) {
		keys = append(keys, k[n:])
	}
	slices.Sort(keys)
	return keys
}

func TestBatchesWaitForASilentMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[1].shutUp()
		first, second := later(b, put(1, "x")), later(b, put(1, "y"))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{`b: backup copy "b": no answer for 1s`}, b.suspicions(), "once")
		require.Empty(t, first)
		require.Equal(t, []string{"x"}, keysOf(t, b.gates[0]), "one batch after the other")
		b.gates[1].open()
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.Equal(t, keysOf(t, b.gates[0]), keysOf(t, b.gates[1]))

		b.gates[1].fail(errDisk)
		third := later(b, put(1, "z"))
		time.Sleep(5 * time.Second)
		require.Empty(t, third)
		require.Equal(t, `b: backup copy "b": disk says no`, b.suspicions()[1])
		require.Less(t, b.gates[1].count("apply"), 15, "asked again, but not all the time")
		b.gates[1].fail(nil)
		require.NoError(t, <-third)
		require.Len(t, b.suspicions(), 2)
		require.Equal(t, keysOf(t, b.gates[0]), keysOf(t, b.gates[1]))
	})
}

func TestDropLetsBatchesAndFencesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[0].shutUp()
		x := later(b, put(1, "x"))
		fenced := make(chan error, 1)
		go func() { fenced <- b.Fence("j/i/o/2", 7) }()
		go func() { fenced <- b.Fence(owner, 2) }()
		time.Sleep(3 * time.Second)
		require.Empty(t, x)
		require.Empty(t, fenced)
		require.NoError(t, b.Drop("a"))
		require.NoError(t, <-x)
		require.NoError(t, <-fenced)
		require.NoError(t, <-fenced)
		require.Equal(t, []string{"b", "c"}, b.View())
		require.NoError(t, applyWait(b, put(2, "y")))
		require.Equal(t, []string{"x", "y"}, keysOf(t, b))
		require.NoError(t, b.Drop("a"), "again")
		require.NoError(t, b.Drop("b"))
		require.ErrorIs(t, b.Drop("c"), ErrLast)
		require.Equal(t, []string{"x", "y"}, keysOf(t, b))
		b.gates[0].open()
		synctest.Wait()
		require.NoError(t, b.gates[0].Fence(owner, 1), "the fence came late, or never")
	})
}

func TestTheLastMembersErrorsAreTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[0].fail(errDisk)
		b.gates[1].fail(errDisk)
		x := later(b, put(1, "x"))
		time.Sleep(3 * time.Second)
		require.Empty(t, x)
		require.NoError(t, b.Drop("a"))
		require.ErrorIs(t, <-x, errDisk)
		require.ErrorIs(t, applyWait(b, put(1, "y")), errDisk)
		require.ErrorIs(t, b.Fence(owner, 2), errDisk)
		require.ErrorIs(t, b.Scan(nil, func(_, _ []byte) error { return nil }), errDisk)
		b.gates[1].fail(nil)
		require.NoError(t, b.Fence(owner, 2))
		require.NoError(t, applyWait(b, put(2, "z")))
		require.Equal(t, []string{"z"}, keysOf(t, b))
	})
}

// A batch that one member has refused may still get to another. What comes after it must not.
func TestNothingFollowsARefusedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[1].shutUp()
		require.NoError(t, b.gates[0].Store.Fence(owner, 2)) // somebody else's, which has not got to b yet
		require.ErrorIs(t, applyWait(b, put(1, "x")), backup.ErrFenced, "without waiting for b")
		require.ErrorIs(t, applyWait(b, put(1, "y")), backup.ErrFenced)
		b.gates[1].open()
		synctest.Wait()
		require.ErrorIs(t, applyWait(b, put(1, "z")), backup.ErrFenced)
		require.Equal(t, []string{"x"}, keysOf(t, b.gates[1]))
		require.NoError(t, b.Fence(owner, 2))
		require.NoError(t, applyWait(b, put(2, "y")))
		require.Equal(t, []string{"x", "y"}, keysOf(t, b))
	})
}

func TestNothingFollowsAFailedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[0].fail(errDisk)
		require.ErrorIs(t, applyWait(b, put(1, "x")), errDisk)
		b.gates[0].fail(nil)
		require.ErrorIs(t, applyWait(b, put(1, "y")), errDisk)
		require.NoError(t, b.Fence(owner, 1))
		require.NoError(t, applyWait(b, put(1, "z")))
		require.Equal(t, []string{"z"}, keysOf(t, b))
	})
}

func TestScanGoesToAnotherMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		require.NoError(t, b.Fence(owner, 1))
		require.NoError(t, applyWait(b, put(1, "x", "y")))

		b.gates[0].fail(errDisk)
		require.Equal(t, []string{"x", "y"}, keysOf(t, b))
		synctest.Wait()
		require.Len(t, b.suspicions(), 1)
		before := b.gates[0].count("scan")
		require.Equal(t, []string{"x", "y"}, keysOf(t, b))
		require.Equal(t, before, b.gates[0].count("scan"), "not at the one in trouble")

		b.gates[1].fail(errDisk)
		b.gates[1].scanned = 1
		seen := 0
		err := b.Scan([]byte(prefixOf(owner)), func(_, _ []byte) error { seen++; return nil })
		require.ErrorIs(t, err, backup.ErrInterrupted, "some of it was handed out")
		require.ErrorIs(t, err, errDisk)
		require.Equal(t, 1, seen)

		b.gates[0].fail(nil)
		b.gates[1].fail(nil)
		require.NoError(t, b.Fence(owner, 2), "both have answered")
		b.gates[0].shutUp()
		at := time.Now()
		require.Equal(t, []string{"x", "y"}, keysOf(t, b), "not at the silent one")
		require.Less(t, time.Since(at), 2*time.Second)
		b.gates[0].open()
	})
}

func TestCloseGivesUpWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		require.NoError(t, b.Fence(owner, 1))
		b.gates[0].fail(errDisk)
		b.gates[1].shutUp()
		x, y := later(b, put(1, "x")), later(b, put(1, "y"))
		fenced := make(chan error, 1)
		go func() { fenced <- b.Fence("j/i/o/2", 2) }()
		time.Sleep(time.Millisecond)
		go func() {
			time.Sleep(10 * time.Second)
			b.gates[1].open()
		}()
		at := time.Now()
		require.NoError(t, b.Close())
		require.Less(t, time.Since(at), 11*time.Second)
		require.ErrorIs(t, <-x, errDisk)
		require.Error(t, <-y)
		require.Error(t, <-fenced)
		require.ErrorIs(t, applyWait(b, put(1, "z")), backup.ErrClosed)
	})
}

// large is n batches that together are n MiB.
func large(epoch uint64, n int) (list []*backup.Batch) {
	for i := range n {
		b := put(epoch, fmt.Sprintf("large%d", i))
		b.Puts[0].Value = make([]byte, 900<<10)
		list = append(list, b)
	}
	return list
}

// A member that lacks more than a batch is torn while it is brought up to date: it cannot stand in for the source then.
func TestAMemberThatIsBroughtUpToDateIsNoSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, empty := newGate(), newGate()
		s := New([]Member{{"whole", whole}}, Options{})
		require.NoError(t, s.Fence(owner, 1))
		for _, b := range large(1, 4) {
			require.NoError(t, applyWait(s, b))
		}
		require.NoError(t, s.Close())
		want := contentsOf(t, whole, prefixOf(owner))

		s = New([]Member{{"empty", empty}, {"whole", whole}}, Options{Patience: time.Second})
		empty.fuse = 2 // the record that it is torn, and a batch
		fenced := make(chan error, 1)
		go func() { fenced <- s.Fence(owner, 2) }()
		time.Sleep(time.Second)
		require.Empty(t, fenced)
		got := len(keysOf(t, empty.Store))
		require.Positive(t, got)
		require.Less(t, got, 4)
		require.NoError(t, s.Drop("whole"))
		empty.fail(nil)
		require.ErrorIs(t, <-fenced, ErrIncomplete)
		require.ErrorIs(t, s.Fence(owner, 3), ErrIncomplete)
		require.NoError(t, s.Close())

		s = New([]Member{{"empty", empty}, {"whole", whole}}, Options{})
		require.NoError(t, s.Fence(owner, 4))
		require.True(t, maps.Equal(want, contentsOf(t, empty, prefixOf(owner))))
		require.NoError(t, s.Drop("whole"))
		require.NoError(t, s.Fence(owner, 5), "it is whole now")
		require.NoError(t, s.Close())
	})
}

// A fence brings one member up to date, and not the other, before the one that had got furthest is lost: the two that are left are
// not alike although the same batch was the last that each was sent.
func TestAFenceThatLosesItsSource(t *testing.T) {
	for _, lose := range []string{"the source", "the process as well"} {
		t.Run(lose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 3)
				require.NoError(t, b.Fence(owner, 1))
				require.NoError(t, applyWait(b, put(1, "x")))
				one := New([]Member{{"a", b.gates[0]}}, Options{})
				require.NoError(t, one.Fence(owner, 2))
				require.NoError(t, applyWait(one, put(2, "y")))
				require.NoError(t, one.Close())

				left := []Member{{"b", b.gates[1]}, {"c", b.gates[2]}}
				b.gates[1].fill(true)
				next := New(append([]Member{{"a", b.gates[0]}}, left...), Options{})
				fenced := make(chan error, 1)
				go func() { fenced <- next.Fence(owner, 3) }()
				time.Sleep(time.Second)
				require.Empty(t, fenced)
				require.NotEqual(t, keysOf(t, b.gates[1]), keysOf(t, b.gates[2]))
				if lose == "the source" {
					require.NoError(t, next.Drop("a"))
					b.gates[1].fill(false)
					require.NoError(t, <-fenced)
				} else {
					require.NoError(t, next.Close())
					require.Error(t, <-fenced)
					b.gates[1].fill(false)
					next = New(left, Options{})
					require.NoError(t, next.Fence(owner, 4))
				}
				require.Equal(t, []string{"x", "y"}, keysOf(t, b.gates[1]))
				require.Equal(t, []string{"x", "y"}, keysOf(t, b.gates[2]))
				require.NoError(t, next.Close())
			})
		})
	}
}

// When all members have the same, a fence reads nothing but their records; after a crash within a batch, only what that touched.
func TestFenceComparesNoMoreThanItMust(t *testing.T) {
	b := newBench(t, 2)
	require.NoError(t, b.Fence(owner, 1))
	for _, x := range large(1, 3) {
		require.NoError(t, applyWait(b, x))
	}
	scans, applies := b.gates[0].count("scan"), b.gates[0].count("apply")
	require.NoError(t, b.Fence(owner, 2))
	require.Equal(t, scans+1, b.gates[0].count("scan"))
	require.Equal(t, applies, b.gates[0].count("apply"))

	require.NoError(t, applyWait(b, put(2, "x", "y")))
	// A process that dies when only one member has its batch.
	one := New([]Member{{"a", b.gates[0]}}, Options{})
	require.NoError(t, one.Fence(owner, 3))
	last := put(3, "x", "z")
	last.Deletes = [][]byte{[]byte(prefixOf(owner) + "y")}
	require.NoError(t, applyWait(one, last))
	require.NoError(t, one.Close())
	require.NotEqual(t, keysOf(t, b.gates[0]), keysOf(t, b.gates[1]))
	before := b.gates[0].count("scan")
	require.NoError(t, b.Fence(owner, 4))
	require.Equal(t, keysOf(t, b.gates[0]), keysOf(t, b.gates[1]))
	require.Equal(t, before+1+2+1, b.gates[0].count("scan"), "the record, two keys, and this test")
}

func TestMarks(t *testing.T) {
	stores := []backup.Store{backup.NewMemory(), backup.NewMemory()}
	list := []Member{{"a", stores[0]}, {"b", stores[1]}}
	s := New(list, Options{})
	defer func() { require.NoError(t, s.Close()) }()
	ok, err := s.Mark(owner, 1, []byte("m"))
	require.NoError(t, err)
	require.False(t, ok, "not fenced")
	require.NoError(t, s.Fence(owner, 1))
	for i := range 3 {
		ok, err = s.Mark(owner, 1, fmt.Append(nil, "mark", i))
		require.NoError(t, err)
		require.True(t, ok)
	}
	ok, err = s.Mark(owner, 1, make([]byte, backup.MaxMarkBytes-markHead+1))
	require.NoError(t, err)
	require.False(t, ok, "too long")
	mark, err := s.ReadMark(owner)
	require.NoError(t, err)
	require.Equal(t, "mark2", string(mark))

	// One is ahead, as after a crash between the two.
	_, err = stores[1].(backup.Marker).Mark(owner, 1, appendMark(nil, point{1, 4}, []byte("mark3")))
	require.NoError(t, err)
	next := New(list, Options{})
	require.NoError(t, next.Fence(owner, 2))
	require.NoError(t, next.Drop("b"))
	mark, err = next.ReadMark(owner)
	require.NoError(t, err)
	require.Equal(t, "mark3", string(mark))
	require.NoError(t, next.Close())

	_, err = s.Mark(owner, 1, []byte("zombie"))
	require.ErrorIs(t, err, backup.ErrFenced)
	require.NoError(t, s.DropMarks("j/"))
	for _, store := range stores {
		mark, err = store.(backup.Marker).ReadMark(owner)
		require.NoError(t, err)
		require.Empty(t, mark)
	}
}

// A partition on copies goes on on any of them.
func TestPartitionOnCopies(t *testing.T) {
	for keep := range 2 {
		stores := []backup.Store{backup.NewMemory(), backup.NewMemory()}
		s := New([]Member{{"a", stores[0]}, {"b", stores[1]}}, Options{})
		key := backup.PartitionKey{Job: "j", Incarnation: "i", Operator: "o", Partition: 1}
		p := backup.OpenPartition(s, key, 1)
		_, err := p.Load()
		require.NoError(t, err)
		for n := range 20 {
			done := make(chan error, 1)
			p.Commit(&backup.Commit{Elements: fmt.Append(nil, n), Source: fmt.Append(nil, n)}, func(err error) { done <- err })
			require.NoError(t, <-done)
		}
		require.NoError(t, s.Close())

		s = New([]Member{{"left", stores[keep]}}, Options{})
		r, err := backup.OpenPartition(s, key, 2).Load()
		require.NoError(t, err)
		require.Equal(t, "19", string(r.Source))
		require.NoError(t, s.Close())
	}
}

func TestRecordsAreNoKeys(t *testing.T) {
	s := New([]Member{{"a", backup.NewMemory()}}, Options{})
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Fence("w", 1))
	b := &backup.Batch{Owner: "w", Epoch: 1, Puts: []backup.Entry{{Key: []byte("u")}, {Key: []byte("vv")}, {Key: []byte("w")}}}
	require.NoError(t, applyWait(s, b))
	for prefix, want := range map[string]int{"": 3, "v": 1, "v/": 0, "v/w": 0} {
		n := 0
		require.NoError(t, s.Scan([]byte(prefix), func(_, _ []byte) error { n++; return nil }))
		require.Equal(t, want, n, "prefix %q", prefix)
	}
}

func TestDropJobLeavesNothingOnAnyCopy(t *testing.T) {
	stores := []backup.Store{backup.NewMemory(), backup.NewMemory()}
	s := New([]Member{{"a", stores[0]}, {"b", stores[1]}}, Options{})
	defer func() { require.NoError(t, s.Close()) }()
	inc, err := backup.NewIncarnation(s, "j")
	require.NoError(t, err)
	require.NoError(t, backup.SaveIncarnation(s, "j/"+inc+"/o/worker-0", backup.WorkerRecord{Epoch: 1}))
	require.NoError(t, backup.SaveGrants(s, "j/"+inc+"/o", []byte("x")))
	p := backup.OpenPartition(s, backup.PartitionKey{Job: "j", Incarnation: inc, Operator: "o", Partition: 1}, 1)
	_, err = p.Load()
	require.NoError(t, err)
	done := make(chan error, 1)
	p.Commit(&backup.Commit{Elements: []byte("e")}, func(err error) { done <- err })
	require.NoError(t, <-done)
	require.NoError(t, backup.DropJob(s, "j", inc))
	for _, store := range stores {
		for _, prefix := range []string{"s/", "w/", "g/", "j/"} {
			require.Empty(t, contentsOf(t, store, prefix))
		}
	}
	p.Commit(&backup.Commit{Elements: []byte("zombie")}, func(err error) { done <- err })
	require.ErrorIs(t, <-done, backup.ErrFenced)
}

// Freezing a partition of a later layout makes its copies equal, like any fence: whichever member its state is read from.
func TestFreezeMakesLaterLayoutsEqual(t *testing.T) {
	stores := []backup.Store{backup.NewMemory(), backup.NewMemory()}
	key := backup.PartitionKey{Job: "j", Incarnation: "1", Operator: "o", Partition: 1, Layout: 2}
	sink := streams.Placement{Operator: "o", Partition: 1}
	write := func(epoch uint64, text string, members ...Member) {
		s := New(members, Options{})
		defer func() { require.NoError(t, s.Close()) }()
		p := backup.OpenPartition(s, key, epoch)
		_, err := p.Load()
		require.NoError(t, err)
		done := make(chan error, 1)
		p.Commit(&backup.Commit{Whole: true, Elements: []byte(text)}, func(err error) { done <- err })
		require.NoError(t, <-done)
		results, at := backup.ResultsOf(s, "j", "1"), sink
		at.Epoch = epoch
		require.NoError(t, results.Open(at))
		require.NoError(t, results.Save(at, 0, []byte(text)))
	}
	write(3, "old", Member{"a", stores[0]}, Member{"b", stores[1]})
	write(4, "new", Member{"a", stores[0]}) // as if the process had died before b had it

	s := New([]Member{{"a", stores[0]}, {"b", stores[1]}}, Options{})
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, backup.Freeze(s, key, backup.Frozen))
	for _, store := range stores {
		r, err := backup.Read(store, key)
		require.NoError(t, err)
		c, err := r.Chunks()
		require.NoError(t, err)
		require.Equal(t, "new", string(c.Data))
		r.Stop()
	}
	require.NoError(t, s.Fence(key.ResultsOwner(), backup.Frozen))
	require.NoError(t, backup.ResultsOf(stores[1], "j", "1").Read("o", func(_ int, chunk []byte) error {
		require.Equal(t, "new", string(chunk))
		return nil
	}))
	require.NoError(t, backup.Drop(s, key, backup.Frozen))
	for _, store := range stores {
		require.Empty(t, contentsOf(t, store, "s/"))
	}
}
