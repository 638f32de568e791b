package backup

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// BadgerOptions are how a store on disk works. The zero value is fine.
type BadgerOptions struct {
	// Sync makes done wait until the batch is on the disk itself. A store without it survives that its process is
	// killed at any moment, because what was written belongs to the operating system; a power cut or a crash of the
	// machine may take the last seconds. With it both are survived, and a batch takes as long as the disk's flush;
	// batches that come while one is flushed share the next flush. Default false.
	Sync bool
	// Logger gets what the store has to say on its own: at debug level what it is doing, at warn and error level what
	// needs attention. Default none.
	Logger *slog.Logger
}

// Sizes of the database. What counts is memory: a job with little state must not pay for a large one. A memtable is a
// log file mapped into memory and an arena of its size and a third; up to two wait to be written out while a third one
// fills. A transaction may take 15 % of a memtable, which must be more than MaxBatchBytes.
const (
	memTableBytes = 8 << 20
	memTables     = 2
	levelTables   = 4
	// valueLogBytes is the size of a value log file. All values are below valueThreshold and so live in the tables:
	// compaction frees their space, while in the value log a superseded base would keep its space until enough small
	// keys have gone through the tables to make Badger notice, which after whole commits they never do.
	valueLogBytes  = 4 << 20
	valueThreshold = 1 << 20

	// blockBytes holds the largest record of a state. A block of less is made larger as it is written, twice for such a record,
	// so that a table takes three times its size while it is built.
	blockBytes = 264 << 10

	// reserveBytes must be free on the disk, or nothing is written. The database writes through mapped memory, where a
	// full disk is not an error but the end of the process; so there must be room for what it does on its own: new
	// memtables, tables, compactions.
	reserveBytes = 64 << 20
	// leastBytes must be free for what makes room: deletes, and what goes with them.
	leastBytes = 16 << 20

	// gcInterval is how often the value log is searched for files to rewrite. Directories keep one from the time when
	// the threshold was lower, if it ever was.
	gcInterval = 5 * time.Minute
	gcDiscard  = 0.5
)

// Key spaces inside the database.
const (
	spaceData  = 'd'
	spaceFence = 'f'
	spaceNote  = 'n'
)

// badgerStore keeps everything in one Badger database. Its committer goroutine writes what is queued, as many batches
// in one transaction as fit: a transaction costs several goroutine hand-overs and, with Sync, a flush of the disk, a
// batch in it a few microseconds. While one transaction is written the next one gathers.
type badgerStore struct {
	db    *badger.DB
	marks *markFile
	sync  bool // see BadgerOptions
	dir   string
	log   *slog.Logger
	seam  seam

	committing, collecting sync.WaitGroup
	stop                   chan struct{} // ends the value-log collector
	closing                sync.Once
	down                   chan struct{} // closed when all is, with closeErr
	closeErr               error

	mu     sync.Mutex
	cond   *sync.Cond // signals: queue not empty, closed, scans gone
	closed bool
	failed error // what the first failed write reported; nothing is written after it
	fences map[string]uint64
	queue  []request
	scans  int
	// What tidy goes by: the jobs of which something was deleted since, and when anything else was written.
	dropped     map[string]bool
	droppedLast []byte // the last of them
	wroteAt     time.Time

	writing sync.Mutex // held by whoever writes to the database: the committer, or tidy
	group   group      // belongs to the committer
}

// seam is what tests replace to see the store meet a failing disk.
type seam struct {
	commit    func(*badger.Txn) error
	room      func(dir string) (uint64, error) // bytes left for this process
	closeTime time.Duration                    // 0 for the usual one
}

// OpenBadger opens the store in directory dir, or makes a new one; a missing directory is created. One process at a
// time may have it open: another one gets ErrLocked. It takes about 35 MB of memory and as much again of mapped files,
// which the system takes back when it needs to, as long as the state is small; see the package comment.
//
// The store owns two goroutines beside those of Badger; Close ends all of them, or gives up after 30 s with an error if the
// directory takes nothing more. If a write fails for another reason than
// a full disk, the store takes no further writes and says why: what a failed write left behind is known only after the
// store is opened again.
func OpenBadger(dir string, o BadgerOptions) (Store, error) {
	s, err := openBadger(dir, o, seam{commit: (*badger.Txn).Commit, room: (&gauge{read: freeBytes}).room})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openBadger(dir string, o BadgerOptions, seam seam) (*badgerStore, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	seam.closeTime = cmp.Or(seam.closeTime, closeTime)
	s := &badgerStore{
		dir: dir, sync: o.Sync, log: o.Logger, seam: seam, stop: make(chan struct{}), fences: map[string]uint64{},
		dropped: map[string]bool{},
	}
	s.cond = sync.NewCond(&s.mu)
	if err := s.open(o); err != nil {
		return nil, fmt.Errorf("open backup %q: %w", dir, err)
	}
	s.committing.Go(s.commitLoop)
	s.collecting.Go(s.collectLoop)
	return s, nil
}

func (s *badgerStore) open(o BadgerOptions) error {
	if err := prepareDir(s.dir); err != nil {
		return err
	}
	if err := s.checkRoom(); err != nil {
		return err
	}
	options := databaseOptions(s.dir, o)
	if err := checkTables(s.dir, options); err != nil {
		return err
	}
	db, err := openDatabase(options)
	if err != nil {
		return explain(err)
	}
	s.db = db
	if err = s.readFences(); err == nil {
		s.marks, err = openMarkFile(s.dir)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// prepareDir finds the faults that Badger reports badly or not at all.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "writable-*")
	if err != nil {
		return fmt.Errorf("directory is not writable: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func databaseOptions(dir string, o BadgerOptions) badger.Options {
	b := badger.DefaultOptions(dir)
	b.SyncWrites = o.Sync
	b.Logger = badgerLog{o.Logger}
	b.MetricsEnabled = false // they are variables of the whole process
	b.DetectConflicts = false
	b.NumVersionsToKeep = 1
	b.MemTableSize = memTableBytes
	b.NumMemtables = memTables
	b.NumLevelZeroTables = levelTables
	b.NumLevelZeroTablesStall = 2 * levelTables
	b.NumCompactors = 2
	b.ValueLogFileSize = valueLogBytes
	b.ValueThreshold = valueThreshold
	// Without compression tables are read where they are mapped and no block cache is needed.
	b.Compression = options.None
	b.BlockCacheSize = 0
	b.IndexCacheSize = 0
	b.BlockSize = blockBytes
	// An iterator that meets a block with a wrong checksum ends as if there were no more keys. The records' own
	// checksums find the damage as well and can name it.
	b.ChecksumVerificationMode = options.NoVerification
	return b
}

// openDatabase makes an error of a panic: files that were damaged from outside make Badger do either.
func openDatabase(o badger.Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, ErrDamaged)
		}
	}()
	return badger.Open(o)
}

// explain says what to do about an error of Badger, whose text is all that it leaves of the cause.
func explain(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "directory lock"):
		return fmt.Errorf("%w: another afstream process uses it: stop that or choose another --backup-dir", ErrLocked)
	case strings.Contains(text, "no space left on device"):
		return fmt.Errorf("%w: %s", ErrDiskFull, strings.TrimSpace(text))
	default:
		return errors.New(strings.Join(strings.Fields(text), " "))
	}
}

func (s *badgerStore) readFences() error {
	return s.scan([]byte{spaceFence}, func(key, value []byte) error {
		var epoch uint64
		if why := decodeNumbers(value, kindFence, &epoch); why != "" {
			return damaged(key, why)
		}
		s.fences[string(key)] = epoch
		return nil
	})
}

// checkRoom refuses to write before the disk is full.
func (s *badgerStore) checkRoom() error {
	usual, _ := s.room()
	return usual
}

// room says why nothing may be written before there is more room on the disk, and why not even what makes some.
func (s *badgerStore) room() (usual, freeing error) {
	free, err := s.seam.room(s.dir)
	if err != nil {
		return err, err
	}
	if free < reserveBytes {
		usual = fmt.Errorf("%d MiB left on its disk, %d needed: delete jobs (afstream job delete), or make room there: %w", free>>20, reserveBytes>>20, ErrDiskFull)
	}
	if free < leastBytes {
		freeing = fmt.Errorf("%d MiB left on its disk, %d needed, and %d to delete jobs: make room there: %w", free>>20, reserveBytes>>20, leastBytes>>20, ErrDiskFull)
	}
	return usual, freeing
}

// Mark implements Marker. With Sync marks would promise less than batches, so there are none.
func (s *badgerStore) Mark(owner string, epoch uint64, record []byte) (bool, error) {
	if err := checkOwner(owner); err != nil {
		return false, err
	}
	if s.sync || len(record) > MaxMarkBytes {
		return false, nil
	}
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.mu.Lock()
	oldest, closed, failed := s.fences[owner], s.closed, s.failed
	s.mu.Unlock()
	switch {
	case closed:
		return false, ErrClosed
	case failed != nil:
		return false, failed
	case epoch < oldest:
		return false, fencedError(owner, epoch, oldest)
	}
	ok, err := s.marks.write(owner, record)
	if err != nil {
		return false, fmt.Errorf("write backup %q: %w", s.dir, explain(err))
	}
	return ok, nil
}

// ReadMark implements Marker. A mark that an older epoch was writing when its owner was fenced is complete before this
// returns.
func (s *badgerStore) ReadMark(owner string) ([]byte, error) { return s.marks.newest(owner) }

// DropMarks implements Marker.
func (s *badgerStore) DropMarks(prefix string) error { return s.marks.drop(prefix) }

func (s *badgerStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return s.scanSpace(spaceData, prefix, fn)
}

func (s *badgerStore) Notes(fn func(key, value []byte) error) error {
	return s.scanSpace(spaceNote, nil, fn)
}

func (s *badgerStore) scanSpace(space byte, prefix []byte, fn func(key, value []byte) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.scans++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.scans--
		s.cond.Broadcast()
		s.mu.Unlock()
	}()
	return s.scan(append([]byte{space}, prefix...), fn)
}

// scan reads keys with their key space, which it takes off before it passes them to fn.
func (s *badgerStore) scan(prefix []byte, fn func(key, value []byte) error) (err error) {
	inside := false // fn is running: a panic is its own
	// A table cut short from outside is a memory fault when it is read, which ends the process unless asked not to.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if inside {
			return
		}
		if r := recover(); r != nil {
			err = fmt.Errorf("scan backup %q: %v: %w", s.dir, r, ErrDamaged)
		}
	}()
	return s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			item := it.Item()
			key := item.Key()
			fromFn := false
			err := item.Value(func(value []byte) error {
				fromFn, inside = true, true
				err := fn(key[1:], value)
				inside = false
				return err
			})
			if err != nil && !fromFn {
				return fmt.Errorf("scan backup %q: %w: %s", s.dir, damaged(key[1:], "unreadable"), explain(err))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// closeTime is how long closing may take. Badger writes a table for as long as its directory does not take it, be that for ever.
const closeTime = 30 * time.Second

func (s *badgerStore) Close() error {
	s.closing.Do(func() {
		s.down = make(chan struct{})
		go func() { // ends once the directory takes what is left to write, or with the process
			defer close(s.down)
			s.closeErr = s.close()
		}()
	})
	limit := time.NewTimer(s.seam.closeTime)
	defer limit.Stop()
	select {
	case <-s.down:
		return s.closeErr
	case <-limit.C:
		return fmt.Errorf("close backup %q: after %v it has not taken what is left to write: is the directory still there, and its disk in order? "+
			"What was backed up is read again when it is opened, as after a kill", s.dir, s.seam.closeTime)
	}
}

func (s *badgerStore) close() error {
	s.mu.Lock()
	s.closed = true
	s.cond.Broadcast()
	for s.scans > 0 {
		s.cond.Wait()
	}
	s.mu.Unlock()
	s.committing.Wait()
	close(s.stop)
	s.collecting.Wait()
	err := s.db.Close()
	if err != nil {
		err = explain(err)
	}
	if err := errors.Join(err, s.marks.close()); err != nil {
		return fmt.Errorf("close backup %q: %w", s.dir, err)
	}
	return nil
}

// collectLoop gives back the room of what was deleted, and now and then rewrites value log files until nothing is left to gain.
func (s *badgerStore) collectLoop() {
	tick, tidy := time.NewTicker(gcInterval), time.NewTicker(tidyEvery)
	defer tick.Stop()
	defer tidy.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.collect()
		case now := <-tidy.C:
			s.tidy(now)
		}
	}
}

func (s *badgerStore) collect() {
	for {
		err := s.db.RunValueLogGC(gcDiscard)
		if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
			return
		}
		if err != nil {
			s.log.Warn("collect value log", "dir", s.dir, "err", err)
			return
		}
		select {
		case <-s.stop:
			return
		default:
		}
	}
}
