package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/afstream/afstream/stream"
)

// maxResult is the most bytes that one chunk of a result may have: so many that its record fits a batch.
const maxResult = 256 << 10

// Results keeps in a store what the sinks of one run of a job have found, in chunks; it is a connector.Vault. A partition
// of a sink is fenced as its state is, with the same epochs, under an owner of its own: PartitionKey.ResultsOwner. Results
// outlive [DropJob]; [DropResults] deletes them.
// All methods may be called concurrently.
type Results struct {
	store            Store
	job, incarnation string
}

// ResultsOf returns the results of one incarnation of a job, which need not have any.
func ResultsOf(s Store, job, incarnation string) *Results {
	return &Results{store: s, job: job, incarnation: incarnation}
}

func (r *Results) key(p stream.Placement) PartitionKey {
	return PartitionKey{Job: r.job, Incarnation: r.incarnation, Operator: p.Operator, Partition: p.Partition}
}

// do calls f with the partition's key if that can be one.
func (r *Results) do(what string, p stream.Placement, f func(k PartitionKey, prefix []byte) error) error {
	k := r.key(p)
	err := k.check()
	if err == nil {
		err = f(k, resultsPrefix(k.Job, k.Incarnation, k.Operator, uint32(k.Partition)))
	}
	if err != nil {
		return fmt.Errorf("%s results of %s: %w", what, k.Owner(), err)
	}
	return nil
}

// Open makes p.Epoch the oldest that may write results of the partition. Errors: ErrFenced, and those of Store.
func (r *Results) Open(p stream.Placement) error {
	return r.do("open", p, func(k PartitionKey, _ []byte) error { return r.store.Fence(k.ResultsOwner(), p.Epoch) })
}

// Save makes chunk n of a partition durable before it returns. It replaces a chunk of that number. Errors: ErrFenced,
// ErrTooLarge beyond 256 KiB, and those of Store.
func (r *Results) Save(p stream.Placement, n uint64, chunk []byte) error {
	return r.do("save", p, func(k PartitionKey, prefix []byte) error {
		if len(chunk) > maxResult || n >= maxNumber {
			return fmt.Errorf("chunk %d of %d bytes: %w", n, len(chunk), ErrTooLarge)
		}
		return applyWait(r.store, &Batch{Owner: k.ResultsOwner(), Epoch: p.Epoch, Puts: []Entry{{
			Key: appendKey(nil, prefix, kindResult, n), Value: appendResult(nil, uint32(k.Partition), n, chunk),
		}}})
	})
}

// Drop deletes the chunks of a partition from n on, durably. Errors: ErrFenced, and those of Store.
func (r *Results) Drop(p stream.Placement, n uint64) error {
	return r.do("drop", p, func(k PartitionKey, prefix []byte) error {
		keys, err := r.from(prefix, n)
		// The last ones first: there must be no gap before those that a crash leaves, or nobody would find them again.
		for len(keys) > 0 && err == nil {
			rest := max(len(keys)-deleteBatch, 0)
			err = applyWait(r.store, &Batch{Owner: k.ResultsOwner(), Epoch: p.Epoch, Deletes: keys[rest:]})
			keys = keys[:rest]
		}
		return err
	})
}

// from returns the keys of the chunks from n on. It reads page by page, since there may be many before.
func (r *Results) from(prefix []byte, n uint64) (keys [][]byte, err error) {
	at := len(prefix) + 1
	for page := n >> pageBits; ; page++ {
		found := false
		first := appendKey(nil, prefix, kindResult, page<<pageBits)
		err := r.store.Scan(first[:len(first)-pageBits/8], func(key, _ []byte) error {
			found = true
			if number, ok := lastNumber(key, at); ok && number >= n {
				keys = append(keys, slices.Clone(key))
			}
			return nil
		})
		if err != nil || !found {
			return keys, err
		}
	}
}

// Read calls take with each chunk of a sink, by partition, then by number. take must not keep chunk. Errors: what take
// returns, ErrDamaged if a chunk is not whole or one before it is missing, and those of Store.
func (r *Results) Read(sink string, take func(part int, chunk []byte) error) error {
	if err := r.read(sink, take); err != nil {
		return fmt.Errorf("read results of %s/%s/%s: %w", r.job, r.incarnation, sink, err)
	}
	return nil
}

func (r *Results) read(sink string, take func(part int, chunk []byte) error) error {
	if err := (PartitionKey{Job: r.job, Incarnation: r.incarnation, Operator: sink}).check(); err != nil {
		return err
	}
	prefix := append(resultsOf(r.job, r.incarnation), sink+"/"...)
	part, next := uint32(0), uint64(0)
	return r.store.Scan(prefix, func(key, value []byte) error {
		at, n, ok := resultPlace(key, len(prefix))
		if !ok {
			return damaged(key, "malformed key")
		}
		if at != part {
			part, next = at, 0
		}
		if n != next {
			return damaged(key, fmt.Sprintf("chunk %d is missing before it", next))
		}
		next++
		chunk, why := decodeResult(value, at, n)
		if why != "" {
			return damaged(key, why)
		}
		return take(int(at), chunk)
	})
}

// DropResults deletes the results of one incarnation of a job. Sinks that still run are fenced for good. Results of others
// stay. Calling it again is fine.
func DropResults(s Store, job, incarnation string) error {
	err := errors.Join(checkName("job", job), checkName("incarnation", incarnation))
	if err == nil {
		if err = fenceAll(s, resultsOf(job, incarnation), resultsOwner); err == nil {
			err = deleteKeys(s, job, 0, resultsOf(job, incarnation), nil)
		}
	}
	if err != nil {
		return fmt.Errorf("drop results of incarnation %q of job %q: %w", incarnation, job, err)
	}
	return nil
}

// resultsOwner finds the owner in the key of a chunk.
func resultsOwner(key []byte) (string, bool) {
	parts := bytes.SplitN(key, []byte("/"), 5)
	if len(parts) != 5 || len(parts[4]) < 4 {
		return "", false
	}
	k := PartitionKey{
		Job: string(parts[1]), Incarnation: string(parts[2]), Operator: string(parts[3]), Partition: int(binary.BigEndian.Uint32(parts[4])),
	}
	return k.ResultsOwner(), k.check() == nil
}

func resultsOf(job, incarnation string) []byte { return []byte("r/" + job + "/" + incarnation + "/") }

func resultsPrefix(job, incarnation, sink string, part uint32) []byte {
	return binary.BigEndian.AppendUint32(append(resultsOf(job, incarnation), sink+"/"...), part)
}

// resultPlace reads partition and number off a key, behind the first skip bytes.
func resultPlace(key []byte, skip int) (part uint32, n uint64, ok bool) {
	if len(key) < skip+5 || key[skip+4] != kindResult {
		return 0, 0, false
	}
	n, ok = lastNumber(key, skip+5)
	return binary.BigEndian.Uint32(key[skip:]), n, ok
}

func appendResult(dst []byte, part uint32, n uint64, chunk []byte) []byte {
	at := len(dst)
	dst = startRecord(dst, kindResult)
	dst = binary.AppendUvarint(dst, uint64(part))
	dst = binary.AppendUvarint(dst, n)
	return sealRecord(append(dst, chunk...), at)
}

// decodeResult returns a part of v.
func decodeResult(v []byte, part uint32, n uint64) (chunk []byte, why string) {
	f, _ := openRecord(v, kindResult)
	f.expect(uint64(part), "chunk of another partition")
	f.expect(n, "another chunk")
	return f.rest, f.why
}
