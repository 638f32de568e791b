// Package soak runs a whole cluster of real processes for a long time while they are killed, and takes figures of it. Its tests
// are built with the tag e2e alone, and do nothing unless they are told to:
//
//	make soak SOAK=1h        # go test -tags e2e ./internal/soak -run Soak -soak 1h -v
//	make bench-cluster       # go test -tags e2e ./internal/soak -run Figures -figures -v
//
// The soak is a NATS server, two controllers, a backup server and three nodes. Two jobs at a time run, are looked at, now and
// then verified, and deleted. All the while processes are killed and started again. Since a leak takes a life to be seen,
// that is so for all of them in the first quarter of the time only: from then on one of each kind is kept alive, and only
// stands still now and then. What each process takes, and the disk, must be the same in the last quarter as in the second, give or
// take what growth says; and when all jobs are deleted nothing must be left of them.
//
// Only tests may import it; internal/house guards that.
package soak
