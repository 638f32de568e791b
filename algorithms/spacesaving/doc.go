// Package spacesaving finds the keys that make up more than a given share of a stream, as package heavyhitter does, with
// the other classic method: it counts some keys by name instead of all of them in a sketch.
//
//	rows := spacesaving.Assemble(items, spacesaving.Options{Capacity: 1000, Threshold: 0.01, Alpha: 1}, 4)
//
// [Count] summarises each partition, [Merge] makes one summary of them at the end of a window and emits a heavyhitter.Row
// for each heavy hitter, which heavyhitter.Compare can check.
//
// # Method and accuracy
//
// A summary has Capacity counters. An item whose key has a counter adds its weight to it. One whose key has none takes
// over the smallest counter, with the count that it has, and remembers that as what it may count too much (Metwally,
// Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005). The counts
// add up to the total U, hence the smallest is at most U/Capacity, and
//
//	weight <= estimate <= weight + U/Capacity
//
// for every key, an estimate being its count, or the smallest if it has none. A key of more than U/Capacity has a counter
// for certain. Unlike with a count-min sketch nothing here is a matter of probability, and memory is in proportion to
// 1/Threshold and not to the wanted error; but an item costs a heap operation, and counts cannot be compensated.
//
// Merged, a key counts the smallest of each summary that does not have it, and the error stays U/Capacity (Agarwal,
// Cormode, Huang, Phillips, Wei and Yi, "Mergeable summaries", PODS 2012, section 3).
//
// # Fault tolerance
//
// Single counters of a summary mean little without the others, since keys take over each other's. So the distance is the
// weight of all items since the last backup (L1), alpha the most that an item weighs, and a backup writes all counters
// that have changed: at most Capacity, however many items there were. What a restore finds, with the items that are
// processed again, is then exactly a summary of the stream without the items that were lost, and their weight is at most
// Theta + L*alpha ([Bound]): estimates are too low by no more than that, and too high by no more than without failures.
// A key with Threshold*U + Theta + L*alpha is reported for certain. Summaries of partitions are added up, so each has an
// n-th of Theta.
package spacesaving
