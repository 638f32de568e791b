// Package reservoir draws a random sample of a fixed size from a stream of unknown length.
//
//	o := reservoir.Options[connector.Keyed]{Size: 1000, Seed: 1}
//	entries := reservoir.Assemble(items, o, 4)
//
// [Sample] draws in each partition and [Merge] makes one sample of all; what comes out is an [Entry] per item drawn, in
// random order, the first of which tells how many items there were.
//
// # Method
//
// Each item is given a random priority, and the items of the smallest priorities are the sample.
//
//   - Plain: the priority u is uniform, so every set of Size items is equally likely to be the sample, as with Algorithm
//     R of Vitter ("Random sampling with a reservoir", ACM TOMS 11, 1985).
//   - Weighted (Options.Weight): the priority is -ln(u)/w, which is A-Res of Efraimidis and Spirakis ("Weighted random
//     sampling with a reservoir", Information Processing Letters 97, 2006) on another scale: the sample is as if one
//     item after another was drawn without replacement, each time with probabilities in proportion to the weights. Most
//     items are passed over without a logarithm, since -ln(u) >= 1-u.
//
// Samples in this form can be merged: the smallest priorities of two samples are those of both streams together. Vitter's
// Algorithm L, which skips items, would save the two nanoseconds that a priority takes, but could not be replayed:
// here the priority of an item is a function of the seed and its ID, or its number in its partition, so that an item
// that is processed again after a failure is drawn again, or again not.
//
// # Fault tolerance
//
// The distance is the number of entries that are in one of two samples and not in the other (errorbound.Count), and how
// far the number of items seen is off, in units of what one entry stands for, seen/Size. An item that is drawn adds one
// entry and takes one away, so alpha = 3. It is rarely that much: item n is drawn with probability Size/n, so backups
// become rare as the stream goes on. Every backup writes what has changed, entry by entry. Samples of partitions are
// merged, and their distances add up at most, so each partition has an n-th of Theta.
//
// The number of the next item is part of every backup. Where the source can be read again it always fits the position
// from which the input goes on. Where items can be lost, those after them are numbered anew: the sample is then as
// random as before, of the items that were not lost, but another one, unless the items have an ID.
//
// After failures at most Theta + L*alpha entries differ ([Bound]); an item that should have been drawn and was lost makes
// two, since another takes its place. Estimates from the sample have the standard error of one that is smaller by that
// ([StandardError]).
package reservoir
