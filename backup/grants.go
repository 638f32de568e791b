package backup

import (
	"bytes"
	"fmt"
)

// SaveGrants makes record what the controller of an operator has granted its workers, durably, before it returns: only
// then may it tell them. A controller that forgot a grant could make it twice. It replaces the record before it. What is
// in it is the caller's business, errorbound.Ledger for one. An operator has one controller at a time; there is nothing
// to be raced.
//
// Errors: ErrFenced if the job was dropped, ErrTooLarge beyond MaxBatchBytes, and those of Store.
func SaveGrants(s Store, owner string, record []byte) error {
	if err := saveGrants(s, owner, record); err != nil {
		return fmt.Errorf("save grants of %q: %w", owner, err)
	}
	return nil
}

func saveGrants(s Store, owner string, record []byte) error {
	if err := checkOwner(owner); err != nil { // before it becomes part of a key
		return err
	}
	value := sealRecord(append(startRecord(nil, kindGrants), record...), 0)
	return applyWait(s, &Batch{Owner: owner, Puts: []Entry{{Key: grantsKey(owner), Value: value}}})
}

// LoadGrants returns what SaveGrants made durable last; found is false if there is nothing. A damaged record is an error.
func LoadGrants(s Store, owner string) (record []byte, found bool, err error) {
	key := grantsKey(owner)
	if err = checkOwner(owner); err == nil {
		err = s.Scan(key, func(k, value []byte) error {
			if !bytes.Equal(k, key) {
				return nil // of another owner whose name starts alike
			}
			why := ""
			if record, why = decodeGrants(value); why != "" {
				return damaged(k, why)
			}
			record, found = bytes.Clone(record), true
			return nil
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("load grants of %q: %w", owner, err)
	}
	return record, found, nil
}

// decodeGrants returns a part of v.
func decodeGrants(v []byte) (record []byte, why string) {
	f, _ := openRecord(v, kindGrants)
	return f.rest, f.why
}

func grantsKey(owner string) []byte { return []byte("g/" + owner) }

// grantsOwner finds the owner in the key of a record of grants.
func grantsOwner(key []byte) (string, bool) {
	owner := string(key[len("g/"):])
	return owner, checkOwner(owner) == nil
}
