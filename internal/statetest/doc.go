// Package statetest is what the tests of states share: a [Store] that plays the runtime and its backups, so that a test
// can let a worker fail at any moment; [MergeLaws] of states that are merged; and [Restore.Fuzz] and [FuzzBinary], which
// hand over bytes that no state wrote.
//
//	s := statetest.NewStore(counters)
//	for _, item := range items {
//		s.Room(t, theta, alpha) // back up when the runtime would
//		counters.Add(item)
//		s.Draw(t)               // backups become durable, or are lost, at any time
//		statetest.CheckLoss(t, s, theta, fresh, distance)
//	}
//
// Only tests may import it; internal/house guards that.
package statetest
