//go:build invariants

package worker

const checkInvariants = true
