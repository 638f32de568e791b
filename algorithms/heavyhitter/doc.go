// Package heavyhitter finds the keys that make up more than a given share of a stream: the flows of most packets, the
// addresses of most bytes, the words of most occurrences.
//
//	sketches := stream.Then(items, "sketch", func() *heavyhitter.Sketch { return heavyhitter.NewSketch(o) },
//		stream.Workers(4), stream.EmitOnClose())
//	rows := stream.Then(sketches, "merge", func() *heavyhitter.Merge { return heavyhitter.NewMerge(o) },
//		stream.EmitOnClose())
//
// [Sketch] summarises each partition's items in a count-min sketch and remembers the keys that may be heavy, [Merge]
// adds the sketches up at the end of a window and emits a [Row] for each key that is heavy in the whole stream.
// [Exact] counts everything and tells how good an answer was.
//
// # Accuracy
//
// Without failures every key with at least Threshold of the total U is reported. With r rows of width w, a key of
// weight v is estimated above v + c*U/w with probability at most c^-r for any c > 1; see errorbound.HeavyHitters for
// the shapes that follow from a wanted accuracy.
//
// Failures within the budget Theta, L, Gamma change a counter of the merged sketch by at most Theta + Alpha*L, and by
// what Gamma lost upstream. Without Options.Compensate a key of less than phi + Theta + Alpha*L, phi = Threshold*U, may
// be missed; with it none is missed, and a key below (1-eps)*phi - Theta - Alpha*L is reported with probability at
// most delta.
//
// # Candidates and failures
//
// A sketch cannot be asked for its keys, so Sketch keeps candidates: a key becomes one when its estimate comes near the
// bar, Threshold of the local total, and may be forgotten when it no longer is. 4/Threshold + 64 are kept; should a
// sketch be so narrow that many more keys seem that heavy, the lightest are forgotten.
//
// New candidates are written by the next backup but do not ask for one, so a failure may lose those that became one
// since the last durable backup. It does not lose a heavy hitter, for "near the bar" means theta + Alpha below it: a
// key whose weight has reached the bar has grown by more than theta since it became a candidate, but no counter may be
// more than theta ahead of its backup, hence there was a backup in between, with the candidate in it. (While theta + Alpha is more than half the bar, near means
// half the bar, and this does not hold; a budget like that promises little anyway. With theta = +Inf it promises
// nothing.)
//
// Where theta rises while a sketch runs, as it may if Theta is divided by load, a key may pass from what was not near into
// what is without being seen, and be lost above the bar by as much as theta has risen. That is within the Theta that keys may
// lack without Options.Compensate. With it near means half the bar at all times, and nothing passes unseen.
package heavyhitter
