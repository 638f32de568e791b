package cli

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// nearest returns the name that a mistyped one may have meant, "" if none is close. The library's own suggestions are
// taken, which always name something, however far, so those that share too little are left out.
func nearest(got string, names []string) string {
	flags := make([]cli.Flag, len(names)) // commands and values, too: only names matter here
	for i, n := range names {
		flags[i] = &cli.StringFlag{Name: n}
	}
	best := strings.TrimLeft(cli.SuggestFlag(flags, got, true), "-")
	if edits(strings.ToLower(got), best) > len(best)/3+1 {
		return ""
	}
	return best
}

// edits returns how many bytes have to be put in, taken out or replaced to make one text of the other.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
