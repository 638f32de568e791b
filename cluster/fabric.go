package cluster

import (
	"context"
	"errors"
)

var (
	// ErrNoRecord is wrapped by errors about a key that has no value.
	ErrNoRecord = errors.New("cluster: no such record")
	// ErrConflict is wrapped by errors of Create and Update if the record is not what the caller believes.
	ErrConflict = errors.New("cluster: record was changed by somebody else")
)

// Record is one value. Revisions of a key grow; they need not be consecutive.
type Record struct {
	Key      string
	Value    []byte // nil if it was deleted
	Revision uint64
}

// Records is a small store of what the processes agree on. Writes of a key are linearizable: of two that expect the same
// revision one fails. Any goroutine may call. Errors other than ErrNoRecord and ErrConflict mean that the store was not
// reached, and of a write that nobody knows whether it was done: read again.
type Records interface {
	// Get returns the value of a key, which may be a little old.
	Get(ctx context.Context, key string) (Record, error)
	// Create makes a record that must not exist, and returns its revision.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Update replaces the value that has that revision.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes the value that has that revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// List returns the records whose keys begin with prefix, in the order of the keys.
	List(ctx context.Context, prefix string) ([]Record, error)
	// Watch calls changed with each record whose key begins with prefix, and then with each change, deletions included, in
	// the order of the revisions of each key; of several changes it may leave out all but the last. It calls synced once all
	// that there was at the start has been told. It returns when ctx ends (nil), or with the error that keeps it from going
	// on: then call it again. Calls are not concurrent.
	Watch(ctx context.Context, prefix string, changed func(Record), synced func()) error
}

// Messages carries messages that may be lost, be late, or come twice. Any goroutine may call.
type Messages interface {
	// Publish sends a message and copies it before it returns. It does not wait for anybody.
	Publish(subject string, message []byte) error
	// Subscribe has deliver called with each message, one at a time, until stop is called. In a subject * stands for one
	// token. deliver must not keep message.
	Subscribe(subject string, deliver func(subject string, message []byte)) (stop func(), err error)
}
