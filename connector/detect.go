package connector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/afstream/afstream/stream"
)

// detect finds the format of an input from its name and its first bytes.
func detect(path string, head []byte) (Format, error) {
	// Captures and Parquet say what they are, and captures often under each other's
	// extension.
	if f := magic(head); f != FormatAuto {
		return f, nil
	}
	switch ext := extension(path); ext {
	case ".csv", ".tsv":
		return FormatCSV, nil
	case ".jsonl", ".ndjson":
		return FormatJSONL, nil
	case ".txt", ".text", ".log":
		return FormatText, nil
	case ".pcap", ".cap", ".dmp":
		return FormatPcap, nil // fails with a better message than guesses would
	case ".pcapng", ".ntar":
		return FormatPcapNG, nil
	case ".parquet":
		return FormatParquet, nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return FormatAuto, errors.New("unknown format: neither text nor a capture nor Parquet")
	}
	if i := skipSpace(head, 0); i < len(head) && head[i] == '{' {
		return FormatJSONL, nil
	}
	return FormatText, nil
}

// magicLen is how many bytes magic needs.
const magicLen = 4

// magic finds formats that begin with a mark.
func magic(head []byte) Format {
	if len(head) < magicLen {
		return FormatAuto
	}
	if string(head[:magicLen]) == "PAR1" {
		return FormatParquet
	}
	switch binary.BigEndian.Uint32(head) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		return FormatPcap
	case 0x0a0d0d0a:
		return FormatPcapNG
	}
	return FormatAuto
}

// extension returns a path's extension in lower case, without that of gzip.
func extension(path string) string {
	path = strings.ToLower(path)
	path = strings.TrimSuffix(path, ".gz")
	return filepath.Ext(path)
}

// buildKeyed starts the decoder for a content's format.
func buildKeyed(path string, o KeyedOptions) build[Keyed] {
	return func(c *content, r *rows, from stream.Position) (decoder[Keyed], uint64, error) {
		auto := o.Format == "" || o.Format == FormatAuto
		least := 1 // byte: tells an empty input
		if auto {
			least = magicLen
		}
		head, err := c.peek(least)
		if len(head) == 0 { // valid in every format, unless there should have been more
			if err != io.EOF {
				err = r.broken(1, err)
			}
			if err != io.EOF {
				return nil, 0, err
			}
			return emptyDecoder[Keyed]{}, from.Item, nil
		}
		format := o.Format
		if auto {
			if format, err = detect(path, head); err != nil {
				return nil, 0, fmt.Errorf("read %s: %w", r.input, err)
			}
		}
		switch format {
		case FormatCSV:
			comma := byte(',')
			if extension(path) == ".tsv" {
				comma = '\t'
			}
			return buildCSV(c, r, from, o, comma)
		case FormatJSONL:
			return buildJSONL(c, r, from, o)
		case FormatPcap:
			return buildPcap(c, r, from, o)
		case FormatPcapNG:
			return buildPcapNG(c, r, from, o)
		case FormatParquet:
			return buildParquet(c, r, from, o)
		}
		if o.Key != "" || o.Weight != "" {
			return nil, 0, fmt.Errorf("read %s: text has no columns to choose: the key is the first field of a line and the weight the second", r.input)
		}
		return buildText(c, r, from)
	}
}
