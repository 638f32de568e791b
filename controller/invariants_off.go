//go:build !invariants

package controller

// checkInvariants makes every division of Theta check its ledger before it uses it. Build with -tags invariants.
const checkInvariants = false
