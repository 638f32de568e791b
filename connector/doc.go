// Package connector holds the ends of a topology: sources that read items from
// files, standard input and generators, and sinks that collect or print results.
// It knows the source and sink interfaces of package stream and nothing of
// operators or of the runtime.
//
// # Keyed items
//
// Heavy hitters and every other count per key read [Keyed] items: a key, its hash
// and a weight, 56 bytes without a pointer, so that a slab of them costs the
// garbage collector nothing and can be copied as plain memory. [OpenKeyed] reads
// them from any of these formats, found by extension and leading bytes unless
// [KeyedOptions] names one:
//
//	text     lines "key [weight]"
//	csv      one record a line, a key column and perhaps a weight column (.tsv: tabs)
//	jsonl    one JSON object a line
//	pcap     packets: the key is an address, a pair of them or a flow
//	pcapng   the same
//	parquet  one row an item
//
// Any of them may be compressed with gzip. [Zipf] generates keyed items instead,
// and [Lines] reads text as strings.
//
// # What every file source promises
//
//   - Items come in file order, and a source opened anew and moved with Seek to an
//     earlier Position yields bit-identical items from there (stream.Replayable).
//     Standard input and other pipes cannot promise that and do not implement it.
//   - A row that cannot be used fails the source, with the file and line in the
//     error, or is skipped and counted: see [BadRows]. Never is half a row used.
//   - Weights are finite and not negative.
//   - No length that the input claims is believed: memory is bounded by the longest
//     line (1 MiB) or packet that is really there. Parquet is the exception, see
//     [FormatParquet].
//   - Read allocates nothing per item, except for [Lines], whose items are strings.
//   - Close may be called at any time, from any goroutine and more than once; it
//     interrupts a blocked Read.
//   - An input that has no items, also a file of no bytes, is valid: the first Read
//     returns io.EOF.
//
// A file is read by one partition: it has one order, and that order is what makes it
// replayable. Generators and slices split over any number of partitions.
package connector
