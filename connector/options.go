package connector

import (
	"errors"
	"fmt"
	"io"
)

// Format is how a file holds keyed items.
type Format string

// Formats that OpenKeyed reads.
const (
	// FormatAuto goes by the file's extension and, where that says nothing or there
	// is none, by the first bytes of the content; text if nothing else fits. The zero
	// Format means the same.
	FormatAuto Format = "auto"
	// FormatText is one item a line: a key and perhaps a weight, separated by blanks
	// or tabs. Lines without a key are passed over.
	FormatText Format = "text"
	// FormatCSV is comma-separated (tab-separated if the name ends in .tsv) with
	// quoting as in RFC 4180, except that a record never spans lines: a quote left
	// open is a fault of that one row instead of swallowing those after it.
	FormatCSV Format = "csv"
	// FormatJSONL is one JSON object a line.
	FormatJSONL Format = "jsonl"
	// FormatPcap is a packet capture as tcpdump writes it.
	FormatPcap Format = "pcap"
	// FormatPcapNG is a packet capture as Wireshark writes it.
	FormatPcapNG Format = "pcapng"
	// FormatParquet is a Parquet file of which two flat columns are read. Unlike for
	// the other formats, memory is bounded by the page sizes that the file states:
	// read Parquet only from those you trust with that.
	FormatParquet Format = "parquet"
)

// BadRows is what happens to a row that cannot be used: malformed, without key, or
// with a weight that is not a finite, non-negative number.
type BadRows string

// Policies for bad rows. An input that is cut off (a capture or gzip stream that ends
// in the middle) counts as one bad row at its end.
const (
	// FailOnBad ends the source with an error that names file and line. The default.
	FailOnBad BadRows = "fail"
	// SkipBad leaves the row out and counts it, see Skipper.
	SkipBad BadRows = "skip"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Builtin is the prefix of paths to the inputs that come with the program, those of
// package data: "builtin:cip.pcap", "builtin:flights".
const Builtin = "builtin:"

// KeyedOptions says what OpenKeyed reads.
type KeyedOptions struct {
	// Path is a file, Stdin, or Builtin and a name. Required unless Reader is set,
	// with which it only names the input in errors.
	Path string
	// Reader is read instead of a file, by one source, once: like standard input it
	// is not replayable. Close closes it if it is an io.Closer, and does not wait for
	// a Read of it that cannot be interrupted.
	Reader io.Reader
	// Format of the content; gzip around it is always found by itself.
	Format Format
	// Key says what the key is. Packets: "src", "dst", "pair" or "flow" (default
	// "src"). csv, jsonl, parquet: the name of a column, required. csv also takes a
	// number, from 1, for files whose first line is not a header. text: leave empty.
	Key string
	// Weight says what the item weighs. Packets: "packets" (1 each, the default) or
	// "bytes" (original length). csv, jsonl, parquet: the name of a column, or empty
	// for 1 each. text: leave empty, the line says.
	Weight string
	// OnBad is the policy for bad rows; empty means FailOnBad.
	OnBad BadRows
}

// Skipper is implemented by the sources of OpenKeyed and Lines. It may be called from
// any goroutine.
type Skipper interface {
	// Skipped returns how many bad rows were left out since the source was opened.
	// Rows passed over again by Seek do not count again.
	Skipped() int64
	// Ignored returns how many rows were fine but had no item in them: packets that
	// are not IP.
	Ignored() int64
}

func (o KeyedOptions) validate() error {
	var errs []error
	if o.Path == "" && o.Reader == nil {
		errs = append(errs, errors.New("no input: give a file, - for standard input or builtin:NAME"))
	}
	switch o.Format {
	case "", FormatAuto, FormatText, FormatCSV, FormatJSONL, FormatPcap, FormatPcapNG, FormatParquet:
	default:
		errs = append(errs, unknown("format", string(o.Format), []string{
			string(FormatAuto), string(FormatText), string(FormatCSV), string(FormatJSONL),
			string(FormatPcap), string(FormatPcapNG), string(FormatParquet),
		}))
	}
	switch o.OnBad {
	case "", FailOnBad, SkipBad:
	default:
		errs = append(errs, unknown("policy for bad rows", string(o.OnBad), []string{string(FailOnBad), string(SkipBad)}))
	}
	return errors.Join(errs...)
}

// name is how errors call the input.
func (o KeyedOptions) name() string {
	switch {
	case o.Path == Stdin && o.Reader == nil:
		return "standard input"
	case o.Path == "":
		return "input"
	default:
		return fmt.Sprintf("%q", o.Path)
	}
}
