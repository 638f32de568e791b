//go:build race

package grep

// raceEnabled: sync.Pool drops items at random under the race detector.
const raceEnabled = true
