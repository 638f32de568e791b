package overnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afstream/afstream/cluster"
)

// Get returns a value as the leader of the bucket has it.
func (f *Fabric) Get(ctx context.Context, key string) (cluster.Record, error) {
	ctx, stop := context.WithTimeout(ctx, requestTime)
	defer stop()
	e, err := f.kv.Get(ctx, key)
	if err != nil {
		return cluster.Record{}, wrong("get", key, err)
	}
	return cluster.Record{Key: key, Value: present(e.Value()), Revision: e.Revision()}, nil
}

// Create makes a record. See the package comment for conflicts with oneself.
func (f *Fabric) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	ctx, stop := context.WithTimeout(ctx, requestTime)
	defer stop()
	revision, err := f.write(ctx, func() (uint64, error) { return f.kv.Update(ctx, key, value, 0) })
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		if marker, found := f.marker(ctx, key); found != nil {
			err = found
		} else if marker != 0 {
			revision, err = f.write(ctx, func() (uint64, error) { return f.kv.Update(ctx, key, value, marker) })
		}
	}
	return revision, wrong("create", key, err)
}

// marker returns the revision of what marks a deletion, 0 if there is none since there is a record.
func (f *Fabric) marker(ctx context.Context, key string) (uint64, error) {
	m, err := f.bucket.GetLastMsgForSubject(ctx, "$KV."+f.records+"."+key)
	if err != nil || m.Header.Get("KV-Operation") == "" {
		return 0, err
	}
	return m.Sequence, nil
}

// Update replaces a value. See the package comment for conflicts with oneself.
func (f *Fabric) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 { // to NATS it would mean that there must be none
		return 0, wrong("update", key, jetstream.ErrKeyRevisionMismatch)
	}
	ctx, stop := context.WithTimeout(ctx, requestTime)
	defer stop()
	revision, err := f.write(ctx, func() (uint64, error) { return f.kv.Update(ctx, key, value, revision) })
	return revision, wrong("update", key, err)
}

// Delete removes a value. See the package comment for conflicts with oneself.
func (f *Fabric) Delete(ctx context.Context, key string, revision uint64) error {
	if revision == 0 { // to NATS it would mean any
		return wrong("delete", key, jetstream.ErrKeyRevisionMismatch)
	}
	ctx, stop := context.WithTimeout(ctx, requestTime)
	defer stop()
	o := []jetstream.KVDeleteOpt{jetstream.LastRevision(revision)}
	if f.markers {
		o = append(o, jetstream.PurgeTTL(markerAge))
	}
	_, err := f.write(ctx, func() (uint64, error) { return 0, f.kv.Purge(ctx, key, o...) })
	return wrong("delete", key, err)
}

// write does one, again for as long as NATS refuses it since another of the same record is under way. NATS does not wait for
// those to know whether there is a conflict. It also says so for a moment after it has answered the other, and, if the other was
// lost on its way to the copies, until there is a new leader.
func (f *Fabric) write(ctx context.Context, do func() (uint64, error)) (uint64, error) {
	for pause := busyPause; ; pause = min(2*pause, retryPause) {
		revision, err := do()
		if !isBusy(err) || !sleep(ctx, pause) {
			return revision, err
		}
	}
}

// isBusy says whether a write was refused since another one is under way.
func isBusy(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// List returns records as a copy of the bucket has them that answers and is not known to lag.
func (f *Fabric) List(ctx context.Context, prefix string) ([]cluster.Record, error) {
	found := map[string]cluster.Record{}
	err := f.watch(ctx, prefix, false, func(r cluster.Record) { found[r.Key] = r }, func() {})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, wrong("list", prefix+"*", err)
	}
	list := make([]cluster.Record, 0, len(found))
	for _, r := range found {
		if r.Value != nil {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Record) int { return cmp.Compare(a.Key, b.Key) })
	return list, nil
}

// Watch tells of records until ctx ends, through failures of servers and the connection that pass within 10 s. The records
// that it begins with do not include what was deleted before.
func (f *Fabric) Watch(ctx context.Context, prefix string, changed func(cluster.Record), synced func()) error {
	told := map[string]bool{} // until all is
	err := f.watch(ctx, prefix, true, func(r cluster.Record) {
		if told == nil || told[r.Key] || r.Value != nil {
			changed(r)
		}
		if told != nil {
			told[r.Key] = true
		}
	}, func() {
		told = nil
		synced()
	})
	return wrong("watch", prefix+"*", err)
}

func (f *Fabric) watch(ctx context.Context, prefix string, follow bool, changed func(cluster.Record), synced func()) error {
	subjects := "$KV." + f.records + "."
	t := tail{f: f, stream: "KV_" + f.records, subject: subjects + tokens(prefix) + ">", follow: follow, synced: synced}
	t.each = func(m *nats.Msg, revision uint64) error {
		key := strings.TrimPrefix(m.Subject, subjects)
		if strings.HasPrefix(key, prefix) {
			r := cluster.Record{Key: key, Revision: revision}
			if m.Header.Get("KV-Operation") == "" {
				r.Value = present(m.Data)
			}
			changed(r)
		}
		return nil
	}
	return t.run(ctx)
}

// tokens is as much of a prefix as a subject can say.
func tokens(prefix string) string { return prefix[:strings.LastIndexByte(prefix, '.')+1] }

// present is a value that is not nil, as those of deleted records are.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// wrong says what was being done, and what callers look for.
func wrong(what, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("%s %s: %w", what, key, cluster.ErrNoRecord)
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !isBusy(err):
		return fmt.Errorf("%s %s: %w", what, key, cluster.ErrConflict)
	}
	return fmt.Errorf("%s %s: records at NATS: %w", what, key, err)
}
