package connector

import (
	"github.com/afstream/afstream/stream"
)

// OpenKeyed checks the options and the input and returns a source of its items, for one
// partition. What can be known beforehand fails here rather than in the running job: a
// file that is missing, a directory, unreadable, of unknown format or without the wanted
// column. Standard input and Reader are first looked at when they are first read.
//
// The sources implement Skipper and stream.Progresser (in bytes of the file as it is on
// disk, of Parquet in rows) and, for regular files and builtin inputs, stream.Replayable.
func OpenKeyed(o KeyedOptions) (stream.NewSource[Keyed], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	in, err := openInput(o.Path, o.Reader, o.name())
	if err != nil {
		return nil, err
	}
	open := newSource(in, o.OnBad == SkipBad, buildKeyed(in.path, o))
	if in.replays { // opening does all the checks; do it once now
		s, err := open(0, 1)
		if err != nil {
			return nil, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	return open, nil
}
