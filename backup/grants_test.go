package backup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGrants(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		job := "job"
		incarnation, err := NewIncarnation(s, job)
		require.NoError(t, err)
		owner := job + "/" + incarnation + "/count/shares"
		_, found, err := LoadGrants(s, owner)
		require.NoError(t, err)
		require.False(t, found)
		for _, record := range []string{"first", "", "third"} {
			require.NoError(t, SaveGrants(s, owner, []byte(record)))
			require.NoError(t, SaveGrants(s, owner+"2", []byte("of another")))
			got, found, err := LoadGrants(s, owner)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, record, string(got))
		}
		require.ErrorIs(t, SaveGrants(s, "a b", nil), ErrName)
		_, _, err = LoadGrants(s, "a b")
		require.ErrorIs(t, err, ErrName)
		require.ErrorIs(t, SaveGrants(s, owner, make([]byte, MaxBatchBytes)), ErrTooLarge)

		require.NoError(t, DropJob(s, job, incarnation))
		_, found, err = LoadGrants(s, owner)
		require.NoError(t, err)
		require.False(t, found, "they go with the job")
		require.ErrorIs(t, SaveGrants(s, owner, nil), ErrFenced, "and do not come back")
	})
}

func TestDamagedGrantsAreAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		require.NoError(t, applyWait(s, &Batch{Owner: "o", Puts: []Entry{{Key: grantsKey("o"), Value: []byte("nothing")}}}))
		_, found, err := LoadGrants(s, "o")
		require.ErrorIs(t, err, ErrDamaged)
		require.False(t, found)
	})
}

func FuzzGrants(f *testing.F) {
	seed := sealRecord(append(startRecord(nil, kindGrants), "record"...), 0)
	fuzzRecord(f, []byte{kindGrants}, seed, func(t *testing.T, v []byte) {
		if record, why := decodeGrants(v); why == "" {
			again, why := decodeGrants(sealRecord(append(startRecord(nil, kindGrants), record...), 0))
			require.Empty(t, why)
			require.Equal(t, record, again)
		}
	})
}
