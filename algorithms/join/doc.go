// Package join joins two streams by key and time as their rows come, and estimates aggregates of joins from samples.
//
//	pairs := stream.Join(departures, arrivals, "join", func() *join.Join[string, Departure, Arrival] { return join.New(o) },
//		stream.Hash(departureKey), stream.Hash(arrivalKey), stream.Workers(4))
//
// # Joins
//
// [Join] is a symmetric hash join: inner, or left outer, of rows of the same key whose times are at most Options.Window
// apart. Pairs are emitted as soon as both rows are there. A row is kept until the other input has moved past its window,
// by the times of the rows themselves and not by any clock, so memory is bounded by the rows of about two windows; if one
// input may stop while the other goes on, by [Options.MaxRows].
//
// An input without a time is a table: its rows are partners of all rows of their key, and stay. A stream joined with a
// table by the table's primary key ([Options.Once]) is kept only while it waits: until the table is there, or for ever if
// it has no such row.
//
// [Exact] and [Compare] tell how complete a result is.
//
// # What failures cost a join
//
// The state is the rows of both tables, the norm their number (Count): alpha is 1, since one row adds itself. Beta is the
// partners of a row. In a left outer join, which also must not emit a row as unmatched that was, or twice, rows that
// leave and rows that find a partner count as well. Inputs are partitioned by key, so states are Disjoint, of which
// the norm adds up. A failure that takes a row takes its later pairs: [MissingPairs] says how many pairs can be missing
// after any number of failures.
//
// None of that is lost where both inputs can be read again and rows leave by their times alone (inner joins of two inputs with times,
// without Once and MaxRows): then no row is backed up, and after a failure the runtime reads the rows of a window again
// (stream.Rebuildable, [Join.OldestItem]). Otherwise theta counts.
//
// Partial backups are exact here: a row is written once, or never if it leaves first. So theta rows in a window that holds
// many more cost hardly anything, and a window that holds fewer than theta rows is never written at all.
//
// # Ripple joins
//
// [Ripple] estimates a sum over the pairs of two inputs from samples of both, with a confidence interval that shrinks as
// samples come in. Its state is sums by key, its divergence the sampled rows that no backup holds: alpha is 1. [RelativeError]
// says what lost samples do to the error.
package join
