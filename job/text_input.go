package job

import (
	"errors"
	"io"
	"strings"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// Text is a text to read.
type Text struct {
	// Path is a file, gzipped or not, connector.Stdin, or connector.Builtin and a name.
	Path string
	// Reader, if not nil, is read instead, once; Path then only names it.
	Reader io.Reader
}

// defaultText is the text that comes with the program.
func defaultText() Text { return Text{Path: connector.Builtin + "opticks"} }

// faults returns what is wrong with t, as far as that can be told without opening it.
func (t Text) faults() []error {
	if strings.TrimSpace(t.Path) == "" && t.Reader == nil {
		return []error{errors.New("no text to read: want the name of a file, or a reader")}
	}
	return nil
}

// textInput is an opened text.
type textInput struct {
	origin
	open stream.NewSource[connector.Block]
}

// openBlocks opens t in blocks as o has them.
func (t Text) openBlocks(o connector.BlockOptions) (*textInput, error) {
	o.Path, o.Reader = t.Path, t.Reader
	in := &textInput{open: connector.Blocks(o)}
	var err error
	in.origin, err = newOrigin(t.Path, in.open)
	return in, err
}
