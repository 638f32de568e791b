package experiments

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/afstream/afstream/data"
)

// corpusName is the text of the experiments, as it comes with the program.
const corpusName = "opticks"

// withText calls use with the path of a temporary file of about size bytes: the text that comes with the program again
// and again, from a line on that the seed selects.
func withText(size, seed uint64, use func(path string) error) error {
	text, err := corpus()
	if err != nil {
		return err
	}
	return withFile(corpusName, func(w *bufio.Writer) error { return writeRepeated(w, text, size, seed) }, use)
}

// corpus returns the text that comes with the program.
func corpus() ([]byte, error) {
	file, ok := data.Lookup(corpusName)
	if !ok {
		return nil, fmt.Errorf("%w: the program comes without the text %q", ErrExperiment, corpusName)
	}
	var text io.Reader = strings.NewReader(file.Content)
	if strings.HasSuffix(file.Name, ".gz") {
		var err error
		if text, err = gzip.NewReader(text); err != nil {
			return nil, fmt.Errorf("read text %q: %w", corpusName, err)
		}
	}
	all, err := io.ReadAll(text)
	if err != nil {
		return nil, fmt.Errorf("read text %q: %w", corpusName, err)
	}
	return all, nil
}

// writeRepeated writes whole lines of a text, starting with the seed-th.
func writeRepeated(w io.Writer, text []byte, size, seed uint64) error {
	for range seed % uint64(max(bytes.Count(text, []byte{'\n'}), 1)) {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	for left := int(size); left > 0; left -= len(text) {
		if left < len(text) {
			text = text[:bytes.LastIndexByte(text[:left], '\n')+1]
			left = len(text)
		}
		if len(text) == 0 {
			return nil
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
