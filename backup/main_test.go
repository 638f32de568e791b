package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/internal/thorough"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirVariable); dir != "" {
		fmt.Fprintln(os.Stderr, crashWriter(dir)) // returns only if it fails
		os.Exit(1)
	}
	thorough.Rapid(30)
	goleak.VerifyTestMain(m)
}

// stores is what every store must be tested with.
var stores = []struct {
	name string
	open func(t testing.TB) Store
}{
	{"memory", func(testing.TB) Store { return NewMemory() }},
	{"badger", func(t testing.TB) Store { return openTestBadger(t, t.TempDir(), BadgerOptions{}) }},
}

// eachStore runs test on each kind of store.
func eachStore(t *testing.T, test func(t *testing.T, s Store)) {
	for _, c := range stores {
		t.Run(c.name, func(t *testing.T) {
			s := c.open(t)
			defer func() { require.NoError(t, s.Close()) }()
			test(t, s)
		})
	}
}

func openTestBadger(t testing.TB, dir string, o BadgerOptions) Store {
	s, err := OpenBadger(filepath.Join(dir, "backup"), o)
	require.NoError(t, err)
	return s
}

// contents reads all keys with prefix as "key=value" in the order of the scan.
func contents(t testing.TB, s Store, prefix string) []string {
	list := []string{}
	require.NoError(t, s.Scan([]byte(prefix), func(key, value []byte) error {
		list = append(list, fmt.Sprintf("%s=%s", key, value))
		return nil
	}))
	return list
}

// batch makes a batch of "key=value" puts and "-key" deletes.
func batch(owner string, epoch uint64, ops ...string) *Batch {
	b := &Batch{Owner: owner, Epoch: epoch}
	for _, op := range ops {
		if k, ok := strings.CutPrefix(op, "-"); ok {
			b.Deletes = append(b.Deletes, []byte(k))
			continue
		}
		k, v, _ := strings.Cut(op, "=")
		b.Puts = append(b.Puts, Entry{Key: []byte(k), Value: []byte(v)})
	}
	return b
}

// flakyStore refuses batches on demand, as a store on a failing disk does.
type flakyStore struct {
	Store
	refuse func(*Batch) bool
	after  bool // write the batch, then report failure
}

var errInjected = errors.New("injected")

func (f *flakyStore) Apply(b *Batch, done func(error)) {
	switch {
	case f.refuse == nil || !f.refuse(b):
		f.Store.Apply(b, done)
	case f.after:
		f.Store.Apply(b, func(err error) { done(errors.Join(err, errInjected)) })
	default:
		done(errInjected)
	}
}

// put and remove change a store behind a partition's back, as damage does.
func put(t testing.TB, s Store, key, value []byte) {
	require.NoError(t, applyWait(s, &Batch{Owner: "vandal", Puts: []Entry{{Key: key, Value: value}}}))
}

func remove(t testing.TB, s Store, key []byte) {
	require.NoError(t, applyWait(s, &Batch{Owner: "vandal", Deletes: [][]byte{key}}))
}

// flip alters one bit of the value at key.
func flip(t testing.TB, s Store, key []byte) {
	var v []byte
	require.NoError(t, s.Scan(key, func(_, value []byte) error {
		v = append(v, value...)
		return nil
	}))
	require.NotEmpty(t, v)
	v[len(v)/2] ^= 1
	put(t, s, key, v)
}
