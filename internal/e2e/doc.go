// Package e2e has tests alone: of whole clusters of real processes, which are killed, stopped and cut off while they run jobs.
//
//	go test -tags e2e ./internal/e2e                    # all of them, some minutes; or make e2e
//	go test -tags e2e ./internal/e2e -e2e.seed 7 -v     # at the moments that this number draws, with what was measured
//
// Without the tag they are not even built, so that go test ./... takes no time here.
//
// Each test starts NATS, two controllers, a backup server and three nodes (package chaos), each by a way of its own to NATS, and
// submits heavy-hitter and wordcount over 5 M items, approximate, heavy-hitter over 5 M in mini-batches, and a smaller one under
// error-free, which waits for a backup with each item. Backups are slow, so that no job ends too early, until the fault has been
// dealt with. Then each job has to finish, and job result --verify has to find all bounds kept, and no difference at all in
// the latter two.
//
// Meanwhile an observer, which no fault reaches, notes every change of the records and every beat. From these and the logs it is checked
// that nothing went two ways: see history_test.go.
package e2e
