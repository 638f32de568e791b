//go:build race

package threshold_test

// raceDetector says that the race detector is on, which slows the simulation down about tenfold.
const raceDetector = true
