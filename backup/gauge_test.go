package backup

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Room is asked for each time where there is not plenty of it, and else now and then.
func TestGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, free, failure := 0, uint64(farBytes), error(nil)
		g := gauge{read: func(string) (uint64, error) { asked++; return free, failure }}
		room := func(times int, want uint64, err error) {
			t.Helper()
			before := asked
			got, failed := g.room("")
			require.Equal(t, err, failed)
			require.Equal(t, want, got)
			require.Equal(t, times, asked-before)
		}
		room(1, farBytes, nil)
		free = farBytes - 1
		room(0, farBytes, nil)
		time.Sleep(gaugeInterval)
		room(1, farBytes-1, nil)
		free = reserveBytes
		room(1, reserveBytes, nil)
		room(1, reserveBytes, nil)
		free, failure = farBytes, errors.New("no disk")
		room(1, farBytes, failure)
		room(1, farBytes, failure)
		failure = nil
		room(1, farBytes, nil)
		room(0, farBytes, nil)
	})
}

// The committer asks, and so does whoever gives back room.
func TestGaugeIsShared(t *testing.T) {
	g := gauge{read: func(string) (uint64, error) { return farBytes, nil }}
	var askers sync.WaitGroup
	for range 2 {
		askers.Go(func() {
			for range 100 {
				free, err := g.room("")
				assert.NoError(t, err)
				assert.EqualValues(t, farBytes, free)
			}
		})
	}
	askers.Wait()
}
