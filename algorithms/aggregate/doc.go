// Package aggregate filters items and keeps, for each key, how many there were, their sum and mean, and the least and
// the largest value.
//
//	o := aggregate.Options[Flight]{
//		Key:   func(f *Flight) connector.Key { return f.Origin },
//		Value: func(f *Flight) float64 { return f.Delay },
//		Keep:  func(f *Flight) bool { return !f.Cancelled },
//		Measure: aggregate.BySum, Alpha: 1440,
//	}
//	rows := aggregate.Assemble(flights, o, 4)
//
// [Aggregate] runs in any number of partitions, to each of which [Assemble] sends the items of its own keys, and emits
// a [Row] for each key at the end of a window. Where the input cannot be partitioned by key, each partition may keep
// aggregates of all keys (Options.Combine), and [Merge] makes one of those of the same key.
//
// All aggregates are exact without failures, up to the rounding of the sum: n additions of float64 are off by at most
// n * 2^-53 times the sum of the absolute values (Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
// section 4.2).
//
// # Fault tolerance
//
// The state is one small record per key, backed up record by record. Sums of positive and negative values can come back
// to where they were, and still be wrong after a failure that replays some items and loses others (see package
// threshold, "What a divergence must be"). So the distance of a key is never the difference of two sums, but what its
// items since the last backup can have done, each of them added up ([Options].Measure):
//
//   - [ByCount]: an item counts 1, alpha = 1. After failures every aggregate of a key is that of its items without at
//     most theta of them. That bounds the count by itself, and all that can be said of a least or largest value.
//   - [BySum]: an item counts the absolute of its value, alpha = Options.Alpha. After failures the sum of a key is off
//     by at most theta.
//
// [Options].Norm says how keys are put together: errorbound.Max, each key by itself, about one small write for each
// 1/2 theta; or errorbound.L1, all keys together, a write for each key that occurred since the last backup. With the
// keys in partitions of their own and Max each partition has all of Theta; [Bound] is what the answer may be off by.
package aggregate
