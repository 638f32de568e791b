package backup

import (
	"fmt"
	"io"
)

// This file holds what it takes to divide the state of a job among other partitions: those of the old layout are closed for good
// and read, those of the new one begin with nothing, and once they have saved what they took over the old ones are
// dropped.

// Frozen is the first of the epochs that are not those of workers: who freezes a partition has one that is his alone, from here
// on. Of two that freeze the same the one with the lower epoch can do nothing more.
const Frozen = uint64(1) << 62

// Freeze lets no worker write the partition any more, durably, before it returns. Doing it again is fine, in the same or a
// higher epoch.
func Freeze(s Store, key PartitionKey, epoch uint64) error {
	err := key.check()
	if err == nil && epoch < Frozen {
		err = fmt.Errorf("epoch %d is one of workers", epoch)
	}
	if err == nil {
		err = s.Fence(key.Owner(), epoch)
	}
	if err != nil {
		return fmt.Errorf("freeze %s: %w", key.Owner(), err)
	}
	return nil
}

// Read returns the newest commit of a partition that nobody writes (Freeze), as Load does, and leaves everything as it is.
// The item log is not looked at. Any number may read at the same time.
//
// Errors: ErrName, ErrClosed, or what the disk reported.
func Read(s Store, key PartitionKey) (*Restored, error) {
	if err := key.check(); err != nil {
		return nil, fmt.Errorf("read %s: %w", key.Owner(), err)
	}
	p := OpenPartition(s, key, 0)
	var f finder
	err := repeat(func() error {
		f = finder{p: p, restored: &Restored{chunks: chunks{err: io.EOF}}}
		return f.find()
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key.Owner(), err)
	}
	return f.restored, nil
}

// Drop deletes the state, the item log and the mark of a partition, which is frozen first. What is left is a record
// of about 100 bytes that keeps it so.
func Drop(s Store, key PartitionKey, epoch uint64) error {
	if err := Freeze(s, key, epoch); err != nil {
		return err
	}
	owner := key.Owner()
	if m, ok := s.(Marker); ok {
		// Names of partitions of one layout may start alike; but then they are all to be dropped.
		if err := m.DropMarks(owner); err != nil {
			return fmt.Errorf("drop %s: %w", owner, err)
		}
	}
	// Not as the owner: what writes as one that is fenced must be alone in its epoch, and this may be repeated by anybody.
	if err := deleteKeys(s, key.Job, 0, key.prefix(), nil); err != nil {
		return fmt.Errorf("drop %s: %w", owner, err)
	}
	return nil
}
