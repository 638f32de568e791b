package backup

import (
	"errors"
	"fmt"
	"strings"
)

// Limits that every [Store] enforces alike, so that what works on one works on all.
const (
	// MaxBatchBytes is the most that [Batch.Size] may be. Apply refuses a larger batch with ErrTooLarge: a batch is an
	// atom, and splitting it would break that silently.
	MaxBatchBytes = 1 << 20

	// MaxKeyBytes is the most that one key may be long.
	MaxKeyBytes = 1 << 10

	// entryOverhead is what one put or delete counts beside its bytes: an upper limit of what a store's index spends
	// on it. It bounds the number of entries of a batch as well as its bytes.
	entryOverhead = 96
)

var (
	// ErrFenced is returned by Apply and Fence, and so by everything that writes, when a newer epoch owns the keys.
	// The caller is a zombie: it must stop and must not try again.
	ErrFenced = errors.New("backup: a newer epoch owns this state")

	// ErrClosed is returned by every method of a closed store.
	ErrClosed = errors.New("backup: store is closed")

	// ErrTooLarge is returned by Apply for a batch beyond MaxBatchBytes, and by Commit and AppendLog for one record
	// whose fields other than its elements or items do not fit a batch.
	ErrTooLarge = errors.New("backup: batch is too large")

	// ErrName is returned for an owner, job, incarnation or operator name that cannot be part of a key.
	ErrName = errors.New("backup: invalid name")

	// ErrKey is returned by Apply for an empty key and for one beyond MaxKeyBytes.
	ErrKey = errors.New("backup: invalid key")

	// ErrDiskFull is returned by Apply and Fence when the disk under the store has no room left. Batches that only delete, and
	// fences at the last epoch there is, as of jobs that are dropped, are taken for some time longer. What was stored
	// before stays readable, and writing works again once there is room.
	ErrDiskFull = errors.New("backup: disk is full")

	// ErrInterrupted is returned by Scan of a store in another process if that was started again after fn had been called:
	// the snapshot is gone. The scan may be repeated from its beginning.
	ErrInterrupted = errors.New("backup: store was started again while it was read")

	// ErrLocked is returned by OpenBadger when another process has the directory open.
	ErrLocked = errors.New("backup: directory is in use")

	// ErrDamaged is wrapped, with the key, by every error about a record that is missing, cut short or altered.
	ErrDamaged = errors.New("backup: damaged record")

	// ErrStale is returned by SaveIncarnation for a record that would take the failure count or the epoch back.
	ErrStale = errors.New("backup: record is older than the stored one")
)

// Entry is one key with its value.
type Entry struct{ Key, Value []byte }

// Batch is one atomic set of writes of one owner in one epoch. Deletes are applied after Puts; deleting a key that does
// not exist is no error.
type Batch struct {
	// Owner is whose fence the batch must pass: one to eight names joined by '/', each matching [A-Za-z0-9_-]{1,64}.
	// It says who writes, not which keys: keeping owners to their own keys is the caller's business.
	Owner string
	// Epoch is the incarnation of the owner that writes.
	Epoch   uint64
	Puts    []Entry
	Deletes [][]byte
}

// Size is what b counts against MaxBatchBytes: all keys and values, and 96 bytes for each put and delete.
func (b *Batch) Size() int {
	n := entryOverhead * (len(b.Puts) + len(b.Deletes))
	for i := range b.Puts {
		n += len(b.Puts[i].Key) + len(b.Puts[i].Value)
	}
	for _, k := range b.Deletes {
		n += len(k)
	}
	return n
}

// check reports why no store may accept b, whatever the state of that store.
func (b *Batch) check() error {
	if err := checkOwner(b.Owner); err != nil {
		return err
	}
	if n := b.Size(); n > MaxBatchBytes {
		return fmt.Errorf("batch of %q: %d bytes, at most %d: %w", b.Owner, n, MaxBatchBytes, ErrTooLarge)
	}
	for i := range b.Puts {
		if err := checkKey(b.Puts[i].Key); err != nil {
			return err
		}
	}
	for _, k := range b.Deletes {
		if err := checkKey(k); err != nil {
			return err
		}
	}
	return nil
}

// Store is an ordered set of keys with atomic batches and fencing. All methods may be called concurrently.
type Store interface {
	// Apply makes b durable, as far as the store's sync policy says, as one atom: all of it or nothing is visible, now
	// and after a crash. Batches become visible in the order of their Apply calls. It never waits for the disk: done is
	// called exactly once with the outcome, maybe from another goroutine and maybe before Apply returns. Until then b
	// and its slices belong to the store, afterwards they are the caller's again. done must neither block nor call
	// Fence or Close; it may call Apply.
	//
	// Errors: ErrFenced, ErrTooLarge, ErrKey, ErrName, ErrDiskFull, ErrClosed, or what the disk reported.
	Apply(b *Batch, done func(error))

	// Fence makes epoch the oldest that may still write for owner, durably, and waits for that. After it returns no
	// write of an older epoch can become visible any more, not even one that was queued before. Repeating an epoch is
	// fine; going back is refused with ErrFenced.
	Fence(owner string, epoch uint64) error

	// Scan calls fn for each key that starts with prefix, in byte order, on a consistent snapshot taken when Scan is
	// called. key and value are valid only during the call and must not be changed. An error of fn ends the scan and is
	// returned as it is. fn may use the store, except for Close.
	Scan(prefix []byte, fn func(key, value []byte) error) error

	// Close waits for the writes and scans under way and releases everything. Closing twice is fine.
	Close() error
}

// maxOwnerParts bounds how many names an owner may consist of.
const maxOwnerParts = 8

func checkKey(k []byte) error {
	if len(k) == 0 || len(k) > MaxKeyBytes {
		return fmt.Errorf("key of %d bytes, want 1 to %d: %w", len(k), MaxKeyBytes, ErrKey)
	}
	return nil
}

// checkOwner allows names joined by '/'. It runs for every batch and therefore allocates nothing.
func checkOwner(owner string) error {
	rest, more := owner, true
	for n := 0; more; n++ {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		if n == maxOwnerParts || !validName(name) {
			return fmt.Errorf("owner %q: %w", owner, ErrName)
		}
	}
	return nil
}

// checkName allows [A-Za-z0-9_-]{1,64}: nothing that could be mistaken for a separator of keys or paths.
func checkName(what, name string) error {
	if !validName(name) {
		return fmt.Errorf("%s %q, want 1 to 64 of A-Z a-z 0-9 _ -: %w", what, name, ErrName)
	}
	return nil
}

func validName(name string) bool {
	if len(name) == 0 || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
