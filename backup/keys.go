package backup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Key layout. Names cannot hold '/' or a zero byte, so no key of one job, operator or owner is a prefix of another's.
//
//	s/JOB/INCARNATION/OPERATOR/ partition(4) kind(1) numbers     state and item log of a partition, in the first layout
//	s/JOB/INCARNATION/OPERATOR.LAYOUT/ partition(4) ...          the same, in a later one
//	  m generation(8)                                            manifest: this generation's base is complete
//	  c generation(8) n(8)                                       n-th chunk of the base
//	  d generation(8) n(8)                                       n-th delta record on top of the base
//	  l n(8)                                                     n-th entry of the item log
//	r/JOB/INCARNATION/SINK/ partition(4) r n(8)                  n-th chunk of what a partition of a sink has found
//	w/OWNER 0x00 failures(8)                                     worker record
//	g/OWNER                                                      what a controller has granted, see SaveGrants
//	j/JOB/INCARNATION                                            incarnation that was not dropped
//	n/JOB                                                        number of the last incarnation ever made
//	v/OWNER                                                      how far a copy has got with an owner, see backup/copies
//
// Numbers are big endian, so byte order is their order.
const (
	kindManifest = 'm'
	kindChunk    = 'c'
	kindDelta    = 'd'
	kindPiece    = 'p' // stored under the keys of deltas: a part of a delta too large for one record
	kindLog      = 'l'
	kindWorker   = 'w'
	kindGrants   = 'g'
	kindCounter  = 'n'
	kindLive     = 'j'
	kindResult   = 'r'

	// Not among the keys: marks, see Marker.
	kindMark      = 'k'
	kindMarkOwner = 'o'
	kindMarkPlace = 'q'
)

// copyPrefix begins the keys of what backup/copies writes for itself.
var copyPrefix = []byte("v/")

// pageBits is how many low bits of a number one prefix scan leaves open when results are read page by page.
const pageBits = 8

// PartitionKey names one partition of one operator. Names match [A-Za-z0-9_-]{1,64}.
type PartitionKey struct {
	Job         string
	Incarnation string // keeps a new job of the same name away from the old one's state; see NewIncarnation
	Operator    string
	Partition   int // 0 to 2^31-1
	// Layout numbers the divisions of the job's state among partitions, from 1; 0 stands for 1. Partitions of different
	// layouts have nothing in common.
	Layout uint64
}

// Owner is the owner under which the partition is fenced: its names and its number joined by '/', with the layout in
// between if it is not the first.
func (k PartitionKey) Owner() string {
	owner := k.Job + "/" + k.Incarnation + "/" + k.Operator + "/"
	if k.Layout > 1 {
		owner += "l" + strconv.FormatUint(k.Layout, 10) + "/"
	}
	return owner + strconv.Itoa(k.Partition)
}

// ResultsOwner is the owner under which the results of a partition of a sink are fenced: the same in all layouts, since
// each goes on with the results of the one before.
func (k PartitionKey) ResultsOwner() string {
	return k.Job + "/" + k.Incarnation + "/" + k.Operator + "/r/" + strconv.Itoa(k.Partition)
}

func (k PartitionKey) check() error {
	if err := checkName("job", k.Job); err != nil {
		return err
	}
	if err := checkName("incarnation", k.Incarnation); err != nil {
		return err
	}
	if err := checkName("operator", k.Operator); err != nil {
		return err
	}
	if k.Partition < 0 || k.Partition > math.MaxInt32 {
		return fmt.Errorf("partition %d, want 0 to 2^31-1: %w", k.Partition, ErrName)
	}
	return nil
}

func (k PartitionKey) prefix() []byte {
	p := []byte("s/" + k.Job + "/" + k.Incarnation + "/" + k.Operator)
	if k.Layout > 1 {
		p = strconv.AppendUint(append(p, '.'), k.Layout, 10) // names hold no dot
	}
	p = append(p, '/')
	return binary.BigEndian.AppendUint32(p, uint32(k.Partition))
}

// KeyRange is all keys that start with Prefix, or that one key if Alone.
type KeyRange struct {
	Prefix []byte
	Alone  bool
}

// Has says whether key is in r.
func (r KeyRange) Has(key []byte) bool {
	return bytes.HasPrefix(key, r.Prefix) && (!r.Alone || len(key) == len(r.Prefix))
}

// OwnedKeys returns all keys that this package ever writes as owner, which nobody else writes before the owner was
// fenced for good (DropJob). They are what whoever keeps several copies has to compare. A new kind of key needs a line here.
func OwnedKeys(owner string) []KeyRange {
	ranges := []KeyRange{{Prefix: workerPrefix(owner)}, {Prefix: grantsKey(owner), Alone: true}}
	switch k, ok := partitionOf(owner); {
	case ok && k.Owner() == owner:
		ranges = append(ranges, KeyRange{Prefix: k.prefix()})
	case ok && k.ResultsOwner() == owner:
		ranges = append(ranges, KeyRange{Prefix: resultsPrefix(k.Job, k.Incarnation, k.Operator, uint32(k.Partition))})
	case !strings.Contains(owner, "/"):
		ranges = append(ranges, KeyRange{Prefix: counterKey(owner), Alone: true}, KeyRange{Prefix: liveKey(owner, "")})
	}
	return ranges
}

// partitionOf returns the partition whose name makes up an owner's.
func partitionOf(owner string) (PartitionKey, bool) {
	parts := strings.Split(owner, "/")
	if len(parts) != 4 && len(parts) != 5 {
		return PartitionKey{}, false
	}
	k := PartitionKey{Job: parts[0], Incarnation: parts[1], Operator: parts[2]}
	var err error
	if layout, ok := strings.CutPrefix(parts[3], "l"); ok && len(parts) == 5 {
		if k.Layout, err = strconv.ParseUint(layout, 10, 64); err != nil {
			return k, false
		}
	}
	k.Partition, err = strconv.Atoi(parts[len(parts)-1])
	return k, err == nil && k.check() == nil
}

// appendKey appends prefix, kind and numbers to dst.
func appendKey(dst, prefix []byte, kind byte, numbers ...uint64) []byte {
	dst = append(append(dst, prefix...), kind)
	for _, n := range numbers {
		dst = binary.BigEndian.AppendUint64(dst, n)
	}
	return dst
}

// maxNumber is beyond every number that counting up can reach. A key with a larger one was damaged; going on from there
// would wrap around.
const maxNumber = 1 << 62

// lastNumber is the number that ends key; ok is false if what follows the first skip bytes is not exactly one number.
func lastNumber(key []byte, skip int) (n uint64, ok bool) {
	if len(key) != skip+8 {
		return 0, false
	}
	n = binary.BigEndian.Uint64(key[skip:])
	return n, n < maxNumber
}

// damaged reports what is wrong with the record at key.
func damaged(key []byte, what string) error {
	return fmt.Errorf("record %q: %s: %w", key, what, ErrDamaged)
}
