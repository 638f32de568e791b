// Package countmin is the count-min sketch: weights by key in a fixed amount of memory, never estimated too low.
//
// A sketch has Rows rows of Width counters. An item adds its weight to one counter of each row, which its hash picks;
// the estimate of a key is the least of its counters. Other keys that share a counter make it too high, so
//
//	weight <= estimate
//	estimate <= weight + eps*total   with probability at least 1-delta
//
// where Width = e/eps and Rows = ln(1/delta) (Cormode and Muthukrishnan, "An improved data stream summary: the
// count-min sketch and its applications", J. Algorithms 55, 2005, theorem 1). For heavy hitters, keys of weight phi or
// more out of a total U, the source paper of this runtime takes Rows = log_1/2(delta) and Width = U/(eps*phi). Package
// errorbound has both as functions, and the limits for other shapes.
//
// # Hashing
//
// A sketch takes items as 64-bit hashes, made once where the item is read. Row i multiplies the hash by an odd number
// of its own and scales the upper half of the product to Width: two multiplications, no division (Dietzfelbinger,
// Hagerup, Katajainen and Penttonen, "A reliable randomized algorithm for the closest-pair problem", 1997). If the
// hashes are uniform then so is every row's choice, and two keys meet in a row with probability 1/Width. What two rows
// h+i*g of double hashing share, h and g, would let keys that meet in two rows meet in all of them.
//
// # Fault tolerance
//
// The counters are [state.Counters]: the distance is the largest difference of a counter (the Max norm) and backups
// are element by element. A sketch restored after a failure estimates a key by at most theta less than the sketch that
// was lost, plus what items lost on the way would have added; [Sketch.Compensate] turns that into "at most that much
// too high", so that no heavy hitter is missed. Sketches of several partitions are added up downstream ([Sketch.Merge]),
// and so are their errors.
package countmin
