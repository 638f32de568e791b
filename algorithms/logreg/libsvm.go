package logreg

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/afstream/afstream/stream"
)

// Libsvm parses lines "label index:value index:value ... # comment", as libsvm and its kin write them. Indices may come
// in any order but each only once. It may not be used by two goroutines at once.
type Libsvm struct {
	// First is the index that the file gives to the first feature: 1 as libsvm has it, or 0. It becomes index 0.
	First int
	// Last is the highest index that is allowed, as the file counts. 0 means any that a model can have.
	Last int

	builder builder
}

// Reuse lets the next example use the memory of one that nobody needs any more.
func (l *Libsvm) Reuse(e Example) { l.builder.Reuse(e) }

var (
	errLabel = errors.New("label is none of 1, +1, 0, -1")
	errPair  = errors.New("feature is no index:value")
	errTwice = errors.New("an index comes twice")
)

// Parse returns the example of a line, or false for a line that is blank or only a comment. The error wraps ErrExample;
// nothing of a line that has one is used.
func (l *Libsvm) Parse(line []byte) (e Example, ok bool, err error) {
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	l.builder.reset()
	label, rest := nextField(line)
	if len(label) == 0 {
		return Example{}, false, nil
	}
	positive, err := parseLabel(label)
	if err != nil {
		return Example{}, false, err
	}
	for field, rest := nextField(rest); len(field) > 0; field, rest = nextField(rest) {
		if err := l.parsePair(field); err != nil {
			return Example{}, false, fmt.Errorf("%w: feature %q: %w", ErrExample, field, err)
		}
	}
	if l.builder.sort() {
		return Example{}, false, fmt.Errorf("%w: %w", ErrExample, errTwice)
	}
	return l.builder.take(positive), true, nil
}

// nextField takes what stands before the next blank.
func nextField(line []byte) (field, rest []byte) {
	line = bytes.TrimLeft(line, " \t\r\n")
	if i := bytes.IndexAny(line, " \t\r\n"); i >= 0 {
		return line[:i], line[i:]
	}
	return line, nil
}

func parseLabel(label []byte) (positive bool, err error) {
	v, err := strconv.ParseFloat(string(label), 64)
	switch {
	case err == nil && v == 1:
		return true, nil
	case err == nil && (v == 0 || v == -1):
		return false, nil
	}
	return false, fmt.Errorf("%w: %q: %w", ErrExample, label, errLabel)
}

func (l *Libsvm) parsePair(field []byte) error {
	before, after, ok := bytes.Cut(field, []byte(":"))
	if !ok {
		return errPair
	}
	index, err := strconv.ParseInt(string(before), 10, 64)
	if err != nil {
		return errPair
	}
	last := int64(l.Last)
	if last == 0 {
		last = int64(l.First) + 1<<MaxBits - 1
	}
	if index < int64(l.First) || index > last {
		return fmt.Errorf("index is not from %d to %d", l.First, last)
	}
	value, err := strconv.ParseFloat(string(after), 32)
	if err != nil || value-value != 0 {
		return fmt.Errorf("value is no finite number")
	}
	if len(l.builder.features) == maxFeatures {
		return fmt.Errorf("more than %d features", maxFeatures)
	}
	l.builder.add(uint32(index-int64(l.First)), float32(value))
	return nil
}

// ParseLines is an operator that makes examples of lines of text, in front of a Learner.
type ParseLines struct {
	parse   func(line string) (Example, bool, error)
	skip    bool
	line    uint64
	skipped uint64
}

// OnBad is what becomes of a line that cannot be used.
type OnBad uint8

const (
	// FailOnBad fails the job. The default.
	FailOnBad OnBad = iota
	// SkipBad leaves the line out and counts it.
	SkipBad
)

// ParseLibsvm returns an operator that parses lines in libsvm format.
func ParseLibsvm(l Libsvm, bad OnBad) *ParseLines {
	return &ParseLines{skip: bad == SkipBad, parse: func(line string) (Example, bool, error) { return l.Parse([]byte(line)) }}
}

// ParseFlights returns an operator that parses the CSV of the input "builtin:flights": date in microseconds, delay,
// distance, origin, destination. Its header is passed over wherever it comes.
func ParseFlights(bits int, bad OnBad) *ParseLines {
	h := NewHasher(bits)
	return &ParseLines{skip: bad == SkipBad, parse: func(line string) (Example, bool, error) {
		var f Flight
		ok, err := f.parse(line)
		if !ok || err != nil {
			return Example{}, false, err
		}
		return h.Flight(&f), true, nil
	}}
}

// FlightsHeader is the first line of the flights CSV.
const FlightsHeader = "date,delay,distance,origin,destination"

// parse reads a line of the flights CSV. It returns false for a blank line and for the header.
func (f *Flight) parse(line string) (bool, error) {
	line = strings.TrimRight(line, "\r\n")
	if line == "" || line == FlightsHeader {
		return false, nil
	}
	var fields [5]string
	for i := range fields {
		var more bool
		if fields[i], line, more = strings.Cut(line, ","); more == (i == len(fields)-1) {
			return false, fmt.Errorf("%w: want 5 fields", ErrExample)
		}
	}
	micros, err := strconv.ParseInt(fields[0], 10, 64)
	delay, err2 := strconv.Atoi(fields[1])
	distance, err3 := strconv.Atoi(fields[2])
	if err := errors.Join(err, err2, err3); err != nil {
		return false, fmt.Errorf("%w: %w", ErrExample, err)
	}
	*f = Flight{micros, delay, distance, fields[3], fields[4]}
	return true, nil
}

// Process implements stream.Operator. The error wraps ErrExample and counts the lines that this instance has seen.
func (p *ParseLines) Process(line string, out *stream.Emitter[Example]) error {
	p.line++
	e, ok, err := p.parse(line)
	switch {
	case err != nil && p.skip:
		p.skipped++
	case err != nil:
		return fmt.Errorf("line %d: %w", p.line, err)
	case ok:
		out.Emit(e)
	}
	return nil
}

// Skipped returns how many lines were left out.
func (p *ParseLines) Skipped() uint64 { return p.skipped }

// Measure implements stream.Measurer: no state, at most one example a line.
func (p *ParseLines) Measure() stream.Measure { return stream.Measure{Beta: 1} }
