//go:build !invariants

package worker

// checkInvariants makes every stage check its machines' numbered invariants as it goes. Build with -tags invariants.
const checkInvariants = false
