package backup

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
