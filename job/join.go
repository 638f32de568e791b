package job

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/afstream/afstream/algorithms/join"
	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// JoinName is the name of the job and of its topology.
const JoinName = "join"

// Join joins flights as they arrive with what goes on from there: with the flights that depart from the same airport
// within a window of time, or, with Table, with the row of their airport in a table. Its operators are left and right
// (the sources), join (Workers of them, each for its part of the airports) and pairs (takes the result).
//
// A flight is taken to arrive half an hour and a minute for every 8 miles after it departs. Flights are read in the order
// of departure, so arrivals are out of order, by less than Slack.
//
// Start from DefaultJoin: the zero value is not valid.
type Join struct {
	Engine

	// Path is a file of flights in CSV, gzipped or not, or Parquet, or connector.Builtin and a name.
	Path string
	// Table, if not empty, is a CSV file without quotes, with a header, whose first column is the airport, see Code.
	Table string
	// Flights is how many flights to read, the first of the input; 0 all.
	Flights uint64

	// Window is how many minutes a departure may be before or after the arrival; it says nothing about a table.
	Window int64
	// Slack is by how many minutes arrivals may be out of order. The larger, the more rows are kept; a row that comes later
	// may miss partners. 700 are enough for any flight.
	Slack int64
	// Show is how many of the pairs the report has, the first by flight; 0 all.
	Show int
}

// DefaultJoin returns the job with all defaults: the arrivals and departures of the flights that come with the program, at
// most 30 minutes apart, under Theta 100, L 100 and Gamma 1,000, the first 10 pairs reported. Theta is a number of rows.
func DefaultJoin() Join {
	return Join{
		Engine: Engine{Params: errorbound.Params{Theta: 100, L: 100, Gamma: 1_000}, Workers: 2, Compute: 1},
		Path:   connector.Builtin + "flights",
		Window: 30,
		Slack:  700,
		Show:   10,
	}
}

// JoinRow is a row of an input.
type JoinRow struct {
	Number uint64 `json:"row"` // within its input, 1 for the first
	Key    Code   `json:"key"` // the airport
	Minute int64  `json:"minute"`
}

// appendRow appends the form that a row has in backups; the error is always nil.
func appendRow(dst []byte, r *JoinRow) ([]byte, error) {
	dst = binary.AppendUvarint(dst, r.Number)
	dst = binary.AppendVarint(dst, r.Minute)
	return r.Key.append(dst), nil
}

var errJoinRow = errors.New("malformed row of a join")

// decodeRow decodes what appendRow made and keeps nothing of src. An error leaves r as it was.
func decodeRow(src []byte, r *JoinRow) error {
	number, n := binary.Uvarint(src)
	if n <= 0 {
		return errJoinRow
	}
	minute, m := binary.Varint(src[n:])
	if m <= 0 {
		return errJoinRow
	}
	key, err := newCode(src[n+m:])
	if err != nil {
		return fmt.Errorf("%w: %w", errJoinRow, err)
	}
	*r = JoinRow{Number: number, Minute: minute, Key: key}
	return nil
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (j *Join) validate() error {
	faults := j.Engine.faults()
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(strings.TrimSpace(j.Path) != "", "nothing to read: want the name of a file of flights")
	check(j.Path != connector.Stdin, "the flights are read twice, and stdin can be read only once: write it to a file first")
	check(j.Table != connector.Stdin, "the table is joined with a file of flights: write it to a file first")
	check(j.Window >= 0, "window of %d minutes: want at least 0", j.Window)
	check(j.Slack >= 0, "slack of %d minutes: want at least 0", j.Slack)
	check(j.Show >= 0, "%d pairs to show: want 0 for all or a number of pairs", j.Show)
	return settingsError(faults)
}

// options returns how rows are joined.
func (j *Join) options() join.Options[Code, JoinRow, JoinRow] {
	key := func(r *JoinRow) Code { return r.Key }
	side := join.Side[Code, JoinRow]{
		Key: key, Time: func(r *JoinRow) int64 { return r.Minute },
		Append: appendRow, Decode: decodeRow,
	}
	o := join.Options[Code, JoinRow, JoinRow]{Left: side, Right: side, Window: j.Window, Slack: j.Slack}
	if j.Table != "" {
		o.Right.Time, o.Once, o.Slack = nil, true, 0
	}
	return o
}

// Minutes that a flight takes.
const (
	onGround       = 30
	milesPerMinute = 8
	microsOfMinute = 60_000_000
)

// arrival and departure make rows of flights. The error says what is wrong with the airport.
func arrival(f *logreg.Flight) (JoinRow, error) {
	key, err := newCode(f.Destination)
	return JoinRow{Key: key, Minute: minuteOf(f) + onGround + int64(f.Distance)/milesPerMinute}, err
}

func departure(f *logreg.Flight) (JoinRow, error) {
	key, err := newCode(f.Origin)
	return JoinRow{Key: key, Minute: minuteOf(f)}, err
}

// minuteOf returns when a flight departs, in minutes since 1970, rounded down.
func minuteOf(f *logreg.Flight) int64 {
	minute := f.Micros / microsOfMinute
	if f.Micros%microsOfMinute < 0 {
		minute--
	}
	return minute
}

// numbered gives rows their numbers, which go on where a source goes on.
type numbered struct {
	stream.Source[JoinRow]
	next uint64
}

// Read implements stream.Source.
func (s *numbered) Read(dst []JoinRow) (int, error) {
	n, err := s.Source.Read(dst)
	for i := range dst[:n] {
		s.next++
		dst[i].Number = s.next
	}
	return n, err
}

// Progress implements stream.Progresser.
func (s *numbered) Progress() (done, total int64) { return s.Source.(stream.Progresser).Progress() }

// Position implements stream.Replayable.
func (s *numbered) Position() stream.Position { return s.Source.(stream.Replayable).Position() }

// Seek implements stream.Replayable.
func (s *numbered) Seek(p stream.Position) error {
	s.next = p.Item
	return s.Source.(stream.Replayable).Seek(p)
}

// number numbers the rows of sources that can go back and know how far they are, as those of files do.
func number(open stream.NewSource[JoinRow]) stream.NewSource[JoinRow] {
	return func(part, parts int) (stream.Source[JoinRow], error) {
		s, err := open(part, parts)
		if err != nil {
			return nil, err
		}
		if _, ok := s.(stream.Replayable); !ok {
			return nil, errors.Join(fmt.Errorf("%w: a join needs files that can be read again", ErrSettings), s.Close())
		}
		return &numbered{Source: s}, nil
	}
}

// joinInput is both opened inputs.
type joinInput struct {
	origin
	left, right stream.NewSource[JoinRow]
}

func (j *Join) openInput() (*joinInput, error) {
	flights := func(row func(f *logreg.Flight) (JoinRow, error)) stream.NewSource[JoinRow] {
		return number(openFlights(j.Path, false, j.Flights, func() (func(*logreg.Flight) (JoinRow, error), func(JoinRow)) { return row, nil }))
	}
	in := &joinInput{left: flights(arrival), right: flights(departure)}
	if j.Table != "" {
		in.right = number(openTable(j.Table))
	}
	var err error
	if in.origin, err = newOrigin(j.Path, in.left); err != nil || j.Table == "" {
		return in, err
	}
	table, err := newOrigin(j.Table, in.right)
	in.name += " and " + table.name
	return in, err
}

// openTable returns a source of the first column of a CSV file.
func openTable(path string) stream.NewSource[JoinRow] {
	return func(part, parts int) (stream.Source[JoinRow], error) {
		t := translation[string, JoinRow]{name: path, header: true, convert: func(line string) (r JoinRow, ok bool, err error) {
			airport, _, _ := strings.Cut(strings.TrimSuffix(line, "\r"), ",")
			r.Key, err = newCode(airport)
			return r, airport != "", err
		}}
		return t.open(connector.Lines(path))(part, parts)
	}
}

// pair is what the join emits.
type pair = join.Pair[JoinRow, JoinRow]

func (j *Join) topology(in *joinInput, pairs *connector.Collector[pair]) *stream.Topology {
	o := j.options()
	t := stream.New(JoinName)
	byKey := stream.HashUint64(func(r JoinRow) uint64 { return uint64(r.Key) })
	joined := stream.Join(stream.From(t, "left", in.left), stream.From(t, "right", in.right), "join",
		func() *join.Join[Code, JoinRow, JoinRow] { return join.New(o) },
		byKey, byKey, stream.Workers(j.Workers), stream.Compute(j.Compute))
	stream.To(joined, "pairs", connector.Collect(pairs))
	return t
}

// Run runs the job until its inputs end; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (j Join) Run(ctx context.Context) (*JoinReport, error) {
	if err := j.validate(); err != nil {
		return nil, err
	}
	in, err := j.openInput()
	if err != nil {
		return nil, err
	}
	return run(ctx, &j.Engine, ofRows(JoinName, &in.origin,
		func(pairs *connector.Collector[pair]) *stream.Topology { return j.topology(in, pairs) }, j.answer,
		func(ctx context.Context, got, clean []pair, result *controller.Result) (*JoinVerification, uint64, error) {
			return j.verify(ctx, in, got, clean, result)
		}))
}
