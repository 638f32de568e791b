//go:build !invariants

package thorough

// Tests says whether the tests try all they can. Build with -tags invariants.
const Tests = false
