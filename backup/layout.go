package backup

import (
	"fmt"
	"io"
	"math"
)

// This file holds what it takes to divide the state of a job among other partitions: those of the old layout are closed for good
// and read, those of the new one begin with nothing, and once they have saved what they took over the old ones are
// dropped.

// Freeze lets nobody write the partition any more, whatever epoch it has, durably, before it returns. Doing it again is fine.
func Freeze(s Store, key PartitionKey) error {
	err := key.check()
	if err == nil {
		err = s.Fence(key.Owner(), math.MaxUint64)
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
func Drop(s Store, key PartitionKey) error {
	if err := Freeze(s, key); err != nil {
		return err
	}
	owner := key.Owner()
	if m, ok := s.(Marker); ok {
		// Names of partitions of one layout may start alike; but then they are all to be dropped.
		if err := m.DropMarks(owner); err != nil {
			return fmt.Errorf("drop %s: %w", owner, err)
		}
	}
	if err := deleteKeys(s, owner, math.MaxUint64, key.prefix(), nil); err != nil {
		return fmt.Errorf("drop %s: %w", owner, err)
	}
	return nil
}
