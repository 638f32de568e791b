package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// maxPacketBytes is the most bytes that a packet of IP can have, jumbograms aside.
const maxPacketBytes = 65535

// origin is what is known of an opened input whatever its items are.
type origin struct {
	name       string
	replayable bool
	rows       *rowCount // those that were left out
}

// KeyedItems are keyed items to read or to make up.
type KeyedItems struct {
	// Input is what to read; an empty Path means the generator.
	Input connector.KeyedOptions
	// Generator makes the input if there is no Input.Path. Its items weigh 1 each; 0 items are not allowed.
	Generator connector.ZipfOptions
}

// defaultItems are the packets that come with the program, by source address.
func defaultItems() KeyedItems {
	return KeyedItems{
		Input:     connector.KeyedOptions{Path: connector.Builtin + "cip.pcap"},
		Generator: connector.ZipfOptions{Items: 10_000_000, Keys: 100_000, S: 1.1},
	}
}

// keyedInput is an opened input of keyed items.
type keyedInput struct {
	origin
	open    stream.NewSource[connector.Keyed]
	counted stream.NewSource[connector.Keyed] // open, with the rows it leaves out counted
	alpha   float64                           // the largest weight an item may have, 0 if nothing is known
}

// newOrigin opens an input to see what it can do.
func newOrigin[T any](path string, open stream.NewSource[T]) (o origin, err error) {
	o.name, o.rows = path, new(rowCount)
	switch path {
	case connector.Stdin:
		o.name = "stdin"
	case "":
		o.name = "a reader"
	}
	first, err := open(0, 1)
	if err != nil {
		return o, err
	}
	_, o.replayable = first.(stream.Replayable)
	if err := first.Close(); err != nil {
		return o, fmt.Errorf("close input %q: %w", o.name, err)
	}
	return o, nil
}

// openInput checks and opens what the settings name.
func (k *KeyedItems) openInput() (*keyedInput, error) {
	if k.Input.Path == "" {
		open, err := connector.Zipf(k.Generator)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSettings, err)
		}
		g := k.Generator
		name := fmt.Sprintf("generator: zipf %g, %d keys, seed %d", g.S, g.Keys, g.Seed)
		return &keyedInput{origin: origin{name: name, replayable: true, rows: new(rowCount)}, open: open, counted: open, alpha: 1}, nil
	}
	open, err := connector.OpenKeyed(k.Input)
	if err != nil {
		return nil, err
	}
	in := &keyedInput{open: open, alpha: likelyAlpha(k.Input)}
	if in.origin, err = newOrigin(k.Input.Path, open); err != nil {
		return nil, err
	}
	in.counted = count(in.rows, open)
	return in, nil
}

// likelyAlpha returns the most that an item of an input can weigh, 0 if that depends on its content.
func likelyAlpha(o connector.KeyedOptions) float64 {
	packets := isCapture(o)
	switch {
	case packets && o.Weight == "bytes":
		return maxPacketBytes
	case packets:
		return 1
	case o.Weight == "" && o.Key != "": // a column is the key and none the weight
		return 1
	case o.Weight == "" && (o.Format == connector.FormatCSV || o.Format == connector.FormatJSONL || o.Format == connector.FormatParquet):
		return 1
	}
	return 0
}

// isCapture says whether an input is known to hold packets. What can be read only once must not be looked at.
func isCapture(o connector.KeyedOptions) bool {
	captures := []connector.Format{connector.FormatPcap, connector.FormatPcapNG}
	if o.Format != "" && o.Format != connector.FormatAuto || o.Path == connector.Stdin || o.Reader != nil {
		return slices.Contains(captures, o.Format)
	}
	o.OnBad = connector.FailOnBad // the other policy takes whatever it is given for a capture of bad packets
	for _, f := range captures {
		o.Format = f // an input of another format fails to open as a capture
		if _, err := connector.OpenKeyed(o); err == nil {
			return true
		}
	}
	return false
}

// inputFaults returns what is wrong with the choice of an input, as far as that can be told without opening it.
func (k *KeyedItems) inputFaults() []error {
	if k.Input.Path == "" {
		if k.Generator.Items == 0 {
			return []error{errors.New("generator of 0 items: want at least 1")}
		}
		return nil
	}
	var faults []error
	formats := []string{"auto", "text", "csv", "jsonl", "pcap", "pcapng", "parquet"}
	if f := string(k.Input.Format); f != "" && !slices.Contains(formats, f) {
		faults = append(faults, fmt.Errorf("unknown format %q: there are %s", f, strings.Join(formats, ", ")))
	}
	return append(faults, badRowFaults(k.Input.OnBad)...)
}

// badRowFaults returns what is wrong with a policy for bad rows.
func badRowFaults(p connector.BadRows) []error {
	switch p {
	case "", connector.FailOnBad, connector.SkipBad:
		return nil
	}
	return []error{fmt.Errorf("unknown policy for bad rows %q: there are %s, %s", p, connector.FailOnBad, connector.SkipBad)}
}
