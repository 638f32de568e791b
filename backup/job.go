package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// WorkerRecord is what must outlive a worker for its error budget to hold: thresholds shrink with each failure, so a
// count that is forgotten would be an error that is allowed twice.
type WorkerRecord struct {
	Epoch    uint64 // incarnation of the worker
	Failures uint64 // recovered failures so far
}

// SaveIncarnation makes r the record of the worker owner and fences the owner at r.Epoch, both durably, before it
// returns: only then may the replacement start. The failure count can never go down, whatever callers race or crash:
// each count is a key of its own and the highest one counts.
//
// Errors: ErrFenced if a newer epoch exists, ErrStale if a higher failure count does, and those of Store.
func SaveIncarnation(s Store, owner string, r WorkerRecord) error {
	if err := saveIncarnation(s, owner, r); err != nil {
		return fmt.Errorf("save incarnation of %q: %w", owner, err)
	}
	return nil
}

func saveIncarnation(s Store, owner string, r WorkerRecord) error {
	if err := s.Fence(owner, r.Epoch); err != nil {
		return err
	}
	// Read after the fence: from here on only this epoch or a newer one can still write.
	old, found, err := readIncarnation(s, owner)
	if err != nil {
		return err
	}
	if found && (r.Failures < old.Failures || r.Epoch < old.Epoch) {
		return fmt.Errorf("epoch %d with %d failures after epoch %d with %d: %w",
			r.Epoch, r.Failures, old.Epoch, old.Failures, ErrStale)
	}
	prefix := workerPrefix(owner)
	b := &Batch{Owner: owner, Epoch: r.Epoch}
	b.Puts = []Entry{{
		Key:   binary.BigEndian.AppendUint64(bytes.Clone(prefix), r.Failures),
		Value: appendNumbers(nil, kindWorker, r.Failures, r.Epoch),
	}}
	if found && old.Failures < r.Failures {
		b.Deletes = [][]byte{binary.BigEndian.AppendUint64(bytes.Clone(prefix), old.Failures)}
	}
	return applyWait(s, b)
}

// LoadIncarnation returns the record that SaveIncarnation made durable last; found is false if there is none. A damaged
// record is an error, never a record with a lower count.
func LoadIncarnation(s Store, owner string) (r WorkerRecord, found bool, err error) {
	if err = checkOwner(owner); err == nil {
		r, found, err = readIncarnation(s, owner)
	}
	if err != nil {
		return WorkerRecord{}, false, fmt.Errorf("load incarnation of %q: %w", owner, err)
	}
	return r, found, nil
}

func readIncarnation(s Store, owner string) (r WorkerRecord, found bool, err error) {
	prefix := workerPrefix(owner)
	err = s.Scan(prefix, func(key, value []byte) error {
		n, ok := lastNumber(key, len(prefix))
		if !ok {
			return damaged(key, "malformed key")
		}
		var failures, epoch uint64
		if why := decodeNumbers(value, kindWorker, &failures, &epoch); why != "" {
			return damaged(key, why)
		}
		if failures != n {
			return damaged(key, "record of another count")
		}
		r = WorkerRecord{Epoch: max(r.Epoch, epoch), Failures: max(r.Failures, failures)}
		found = true
		return nil
	})
	return r, found, err
}

// workerPrefix ends in a zero byte, which no name holds: otherwise the records of owner a/b would be among those of a.
func workerPrefix(owner string) []byte { return append([]byte("w/"+owner), 0) }

// NewIncarnation makes a name for a new run of job and makes it durable as the latest. A name is never given out again,
// not even after DropJob, so whatever an old run left behind or still writes can never be taken for the new run's.
func NewIncarnation(s Store, job string) (string, error) {
	name, err := newIncarnation(s, job)
	if err != nil {
		return "", fmt.Errorf("new incarnation of job %q: %w", job, err)
	}
	return name, nil
}

func newIncarnation(s Store, job string) (string, error) {
	if err := checkName("job", job); err != nil {
		return "", err
	}
	counter := counterKey(job)
	var last uint64
	err := s.Scan(counter, func(key, value []byte) error {
		if !bytes.Equal(key, counter) {
			return nil // another job whose name starts alike
		}
		if why := decodeNumbers(value, kindCounter, &last); why != "" {
			return damaged(key, why)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	// The number makes names sort by age; the random part keeps two callers apart that read the same number.
	name := fmt.Sprintf("%010d-%08x", last+1, rand.Uint32())
	return name, applyWait(s, &Batch{Owner: job, Puts: []Entry{
		{Key: counter, Value: appendNumbers(nil, kindCounter, last+1)},
		{Key: liveKey(job, name), Value: appendNumbers(nil, kindLive, last+1)},
	}})
}

// LatestIncarnation returns the newest incarnation of job that NewIncarnation made and DropJob did not drop; found is
// false if there is none.
func LatestIncarnation(s Store, job string) (name string, found bool, err error) {
	if err = checkName("job", job); err != nil {
		return "", false, fmt.Errorf("latest incarnation: %w", err)
	}
	prefix := liveKey(job, "")
	err = s.Scan(prefix, func(key, value []byte) error {
		var number uint64
		if why := decodeNumbers(value, kindLive, &number); why != "" {
			return damaged(key, why)
		}
		name, found = string(key[len(prefix):]), true
		return nil
	})
	if err != nil {
		return "", false, fmt.Errorf("latest incarnation of job %q: %w", job, err)
	}
	return name, found, nil
}

func counterKey(job string) []byte { return []byte("n/" + job) }

func liveKey(job, name string) []byte { return []byte("j/" + job + "/" + name) }

// DropJob deletes everything of one incarnation of a job: states, item logs, marks, worker records and grants. From its first step on
// LatestIncarnation does not find the incarnation any more, so a crash in between leaves garbage but nothing that could
// be taken for state; calling it again removes that. Workers of the incarnation that still run are fenced for good,
// which leaves a record of about 100 bytes for each.
func DropJob(s Store, job, incarnation string) error {
	if err := dropJob(s, job, incarnation); err != nil {
		return fmt.Errorf("drop incarnation %q of job %q: %w", incarnation, job, err)
	}
	return nil
}

func dropJob(s Store, job, incarnation string) error {
	if err := errors.Join(checkName("job", job), checkName("incarnation", incarnation)); err != nil {
		return err
	}
	if err := applyWait(s, &Batch{Owner: job, Deletes: [][]byte{liveKey(job, incarnation)}}); err != nil {
		return err
	}
	states := []byte("s/" + job + "/" + incarnation + "/")
	workers := []byte("w/" + job + "/" + incarnation + "/")
	grants := []byte("g/" + job + "/" + incarnation + "/")
	if err := fenceAll(s, states, stateOwner); err != nil {
		return err
	}
	if err := fenceAll(s, workers, workerOwner); err != nil {
		return err
	}
	if err := fenceAll(s, grants, grantsOwner); err != nil {
		return err
	}
	if m, ok := s.(Marker); ok {
		if err := m.DropMarks(job + "/" + incarnation + "/"); err != nil {
			return err
		}
	}
	for _, prefix := range [][]byte{states, workers, grants} {
		if err := deleteKeys(s, job, 0, prefix, nil); err != nil {
			return err
		}
	}
	return nil
}

// fenceAll fences each owner of a key with prefix against every epoch that can ever be.
func fenceAll(s Store, prefix []byte, owner func(key []byte) (string, bool)) error {
	last := ""
	return s.Scan(prefix, func(key, _ []byte) error {
		o, ok := owner(key)
		if !ok || o == last {
			return nil
		}
		last = o
		return s.Fence(o, math.MaxUint64)
	})
}

// stateOwner finds the owner in the key of a partition's record.
func stateOwner(key []byte) (string, bool) {
	parts := bytes.SplitN(key, []byte("/"), 5)
	if len(parts) != 5 || len(parts[4]) < 4 {
		return "", false
	}
	operator, layout, later := strings.Cut(string(parts[3]), ".")
	k := PartitionKey{
		Job: string(parts[1]), Incarnation: string(parts[2]), Operator: operator, Partition: int(binary.BigEndian.Uint32(parts[4])),
	}
	if later {
		var err error
		if k.Layout, err = strconv.ParseUint(layout, 10, 64); err != nil || k.Layout < 2 {
			return "", false
		}
	}
	return k.Owner(), k.check() == nil
}

// workerOwner finds the owner in the key of a worker record.
func workerOwner(key []byte) (string, bool) {
	name, _, ok := bytes.Cut(key[len("w/"):], []byte{0})
	return string(name), ok && checkOwner(string(name)) == nil
}

// applyWait applies b and waits for the outcome.
func applyWait(s Store, b *Batch) error {
	done := make(chan error, 1)
	s.Apply(b, func(err error) { done <- err })
	return <-done
}

// deleteBatch is how many keys deleteKeys deletes at once.
const deleteBatch = 1024

// deleteKeys deletes the keys with prefix that match, or all of them if match is nil, in batches, and waits until the
// last is durable. One scan lists them all: starting again after each batch would step over ever more deleted keys.
func deleteKeys(s Store, owner string, epoch uint64, prefix []byte, match func(key []byte) bool) error {
	b := &Batch{Owner: owner, Epoch: epoch}
	flush := func() error {
		if len(b.Deletes) == 0 {
			return nil
		}
		err := applyWait(s, b)
		b.Deletes = b.Deletes[:0]
		return err
	}
	err := s.Scan(prefix, func(key, _ []byte) error {
		if match != nil && !match(key) {
			return nil
		}
		b.Deletes = append(b.Deletes, bytes.Clone(key))
		if len(b.Deletes) < deleteBatch {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}
