//go:build !race

package threshold_test

// raceDetector says that the race detector is on.
const raceDetector = false
