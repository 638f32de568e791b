// Package thorough says how much tests try. What go test tries is soon done and still meets every kind of case; make race,
// which builds with the tag invariants, tries all.
//
// Only tests may import it; internal/house guards that.
package thorough

import (
	"flag"
	"strconv"
	"testing"
)

// Number returns few, or many where the tests are thorough: of seeds, cases or items.
func Number(few, many int) int {
	if Tests {
		return many
	}
	return few
}

// Tries says whether a test is to try the case of a grid of cases that has this place in each of its dimensions: always where
// the tests are thorough, and else one in n, so that one of n neighbours in any dimension is tried.
func Tries(n int, place ...int) bool {
	sum := 0
	for _, p := range place {
		sum += p
	}
	return Tests || sum%n == 0
}

// Only skips a test that takes long, and that make race alone is to do.
func Only(t testing.TB) {
	t.Helper()
	if !Tests {
		t.Skip("done by make race")
	}
}

// Rapid has tests by package rapid draw n cases each, or as many as rapid does by itself where the tests are thorough, unless
// -rapid.checks says how many. It is for TestMain.
func Rapid(n int) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); !Tests && checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(n))
	}
}
