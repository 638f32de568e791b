//go:build race

package connector

// raceEnabled: sync.Pool drops items at random under the race detector.
const raceEnabled = true
