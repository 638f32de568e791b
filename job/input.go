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

// input is an opened input of keyed items.
type input struct {
	name       string
	open       stream.NewSource[connector.Keyed]
	counted    stream.NewSource[connector.Keyed] // open, with the rows it leaves out counted in rows
	replayable bool
	rows       rowCount
	alpha      float64 // the largest weight an item may have, 0 if nothing is known
}

// openInput checks and opens what the settings name.
func (h *HeavyHitter) openInput() (*input, error) {
	if h.Input.Path == "" {
		open, err := connector.Zipf(h.Generator)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSettings, err)
		}
		g := h.Generator
		name := fmt.Sprintf("generator: zipf %g, %d keys, seed %d", g.S, g.Keys, g.Seed)
		return &input{name: name, open: open, counted: open, replayable: true, alpha: 1}, nil
	}
	open, err := connector.OpenKeyed(h.Input)
	if err != nil {
		return nil, err
	}
	in := &input{name: h.Input.Path, open: open, alpha: likelyAlpha(h.Input)}
	if in.name == connector.Stdin {
		in.name = "stdin"
	}
	in.counted = in.rows.count(open)
	first, err := open(0, 1)
	if err != nil {
		return nil, err
	}
	_, in.replayable = first.(stream.Replayable)
	if err := first.Close(); err != nil {
		return nil, fmt.Errorf("close input %q: %w", in.name, err)
	}
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
func (h *HeavyHitter) inputFaults() []error {
	if h.Input.Path == "" {
		if h.Generator.Items == 0 {
			return []error{errors.New("generator of 0 items: want at least 1")}
		}
		return nil
	}
	var faults []error
	formats := []string{"auto", "text", "csv", "jsonl", "pcap", "pcapng", "parquet"}
	if f := string(h.Input.Format); f != "" && !slices.Contains(formats, f) {
		faults = append(faults, fmt.Errorf("unknown format %q: there are %s", f, strings.Join(formats, ", ")))
	}
	switch p := h.Input.OnBad; p {
	case "", connector.FailOnBad, connector.SkipBad:
	default:
		faults = append(faults, fmt.Errorf("unknown policy for bad rows %q: there are %s, %s", p, connector.FailOnBad, connector.SkipBad))
	}
	return faults
}
