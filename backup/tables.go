package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// checkTables finds table files that were cut short or whose end was overwritten. Badger reads the end of each table in
// goroutines of its own, where such a file ends the process; found here it is an error that names the file. A table ends
// in: index, length of the index (4), checksum of the index, length of the checksum (4).
//
// Only the tables that the manifest names are looked at: a process that is killed while it writes one leaves a part of
// it, which Badger removes unread.
func checkTables(dir string, o badger.Options) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, o.ExternalMagicVersion, o)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	for id := range manifest.Tables {
		name := table.NewFilename(id, dir)
		if err := checkTable(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // which Badger reports itself
			return err
		}
	}
	return nil
}

func checkTable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	left := info.Size()
	for _, what := range []string{"checksum", "index"} {
		var b [4]byte
		left -= int64(len(b))
		if left < 0 {
			return fmt.Errorf("table %q is cut short: %w", name, ErrDamaged)
		}
		if _, err := f.ReadAt(b[:], left); err != nil {
			return err
		}
		if left -= int64(binary.BigEndian.Uint32(b[:])); left < 0 {
			return fmt.Errorf("table %q has no valid %s: %w", name, what, ErrDamaged)
		}
	}
	return nil
}
