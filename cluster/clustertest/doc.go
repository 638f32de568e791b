// Package clustertest is for tests of what runs on package cluster: what its Records, Messages and Logs must do, as tests
// ([TestRecords] and others), and a network that is simulated in memory ([Net]).
//
// # The network
//
// A [Net] belongs to one bubble of testing/synctest, whose fake time it uses. Each simulated process has a handle, a
// [Process], through which all goes that it shares with others: records, messages, logs, the links between workers
// (Process.Carrier) and backup stores (Process.Store). There faults are made: what is lost, late, doubled or overtaken by
// chance (Faults), and processes that are cut off, do not hear each other, stand still or are dead.
//
//	synctest.Test(t, func(t *testing.T) {
//		n := clustertest.New(t, seed, clustertest.Faults{Lose: 0.1, Delay: 20 * time.Millisecond})
//		one := n.Process("one") // cluster.Records, cluster.Messages and cluster.Logs
//		bus, err := link.NewBusOver(one.Carrier(), "afstream.test")
//		...
//		one.Cut()
//		time.Sleep(time.Minute)
//		one.Heal()
//	})
//
// Everybody reaches everybody through one NATS, so a process that is cut off from it is cut off from all. Records and logs
// are at the place [Keeper], which can be cut off too, and so can the place of each store.
//
// What a process does by itself is its own: its timers run on while it stands still, and a test ends its goroutines after it was
// killed. But nothing of it gets out: a dead process's writes and messages are not done, and those of one that stands still are
// done when it goes on, before or after what has arrived meanwhile, as would be so for one that was stopped by a signal.
//
// The choices of each process follow from the seed, its name and the order of its own calls. Goroutines that run at the same
// fake instant may still run in another order the next time.
//
// Only tests may import it; internal/house guards that.
package clustertest
