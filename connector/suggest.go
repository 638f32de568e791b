package connector

import (
	"fmt"
	"strings"
)

// unknown is the error for a name that is none of those there are. It lists them, and
// suggests one if the name looks like a slip of it.
func unknown(what, got string, have []string) error {
	hint := ""
	if s := nearest(got, have); s != "" {
		hint = fmt.Sprintf(" did you mean %q?", s)
	}
	const most = 40
	list := have
	more := ""
	if len(list) > most {
		list, more = list[:most], fmt.Sprintf(" and %d more", len(have)-most)
	}
	return fmt.Errorf("unknown %s %q:%s there are %s%s", what, got, hint, strings.Join(list, ", "), more)
}

// nearest returns the name closest to got, or "" if none is close.
func nearest(got string, have []string) string {
	best, bestDist := "", len(got)/3+2
	for _, name := range have {
		if d := editDistance(strings.ToLower(got), strings.ToLower(name)); d < bestDist {
			best, bestDist = name, d
		}
	}
	return best
}

// editDistance is Levenshtein's, over bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(diag+cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
