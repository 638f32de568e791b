package grep

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("grep: invalid options")

// Options say what to look for. All operators of a job must be given the same.
type Options struct {
	// Strings and Patterns are what a line must hold one of; at least one is needed. Strings are looked for as they are
	// and may hold no end of a line, Patterns are regular expressions in the syntax of package regexp. None may be empty.
	Strings  []string
	Patterns []string

	// IgnoreCase makes lower and upper case the same: of ASCII letters in Strings, of all letters in Patterns.
	IgnoreCase bool

	// BlockSize is how many bytes of lines make a block, connector.MinBlockSize to connector.MaxBlockSize; 0 is
	// connector.DefaultBlockSize. Beta, how many matches one block can have, grows with it.
	BlockSize int
}

// maxStrings bounds the total length of Strings: their automaton takes up to 1 KiB for a byte of them.
const maxStrings = 1 << 16

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	check(len(o.Strings)+len(o.Patterns) > 0, "neither a string nor a pattern to look for")
	total := 0
	for _, s := range o.Strings {
		check(s != "" && !strings.ContainsAny(s, "\r\n"), "string %q: want one that is not empty and holds no end of a line", s)
		total += len(s)
	}
	check(total <= maxStrings, "strings of %d bytes together, want at most %d", total, maxStrings)
	for _, p := range o.Patterns {
		_, err := regexp.Compile(p)
		check(err == nil, "pattern %q: %v", p, err)
		check(p != "", "an empty pattern, which every line matches")
	}
	check(o.BlockSize == 0 || o.BlockSize >= connector.MinBlockSize && o.BlockSize <= connector.MaxBlockSize,
		"block size %d, want %d to %d", o.BlockSize, connector.MinBlockSize, connector.MaxBlockSize)
	return errors.Join(faults...)
}

// mustBeValid panics if o is not valid.
func (o Options) mustBeValid() {
	if err := o.Validate(); err != nil {
		panic(err)
	}
}

func (o Options) blockSize() int {
	if o.BlockSize == 0 {
		return connector.DefaultBlockSize
	}
	return o.BlockSize
}

// Blocks returns the options of connector.Blocks that suit o.
func Blocks(path string, o Options) connector.BlockOptions {
	return connector.BlockOptions{Path: path, Size: o.blockSize(), Cut: connector.CutLines}
}

// Beta returns how many lines of one block can match. A line takes at least the shortest string and its end; a pattern
// may match an empty line. (Blocks longer than BlockSize hold a single line.)
func (o Options) Beta() float64 {
	shortest := 0
	if len(o.Patterns) == 0 {
		for i, s := range o.Strings {
			if i == 0 || len(s) < shortest {
				shortest = len(s)
			}
		}
	}
	return float64(o.blockSize()/(shortest+1) + 1)
}

// Bound returns how many matches can be lost after any number of failures within p, while its Overdraft is 0: Gamma
// where the source can be read again, and Gamma + L*beta where it cannot.
func Bound(p errorbound.Params, o Options, sourceReplays bool) float64 {
	if sourceReplays {
		p.L = 0
	}
	return p.LossBound(o.Beta())
}
