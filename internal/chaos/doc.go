// Package chaos runs what users run, as real processes, for tests that hurt them: afstream and nats-server, alone or as a cluster
// of three with JetStream.
//
//	tools := chaos.NewTools() // in TestMain; builds what is asked for, once
//	defer tools.Close()
//
//	servers := chaos.StartNATS(t, tools, 3)
//	proxy := chaos.NewProxy(t, servers[0].Address())
//	backup := chaos.Start(t, chaos.Command{Path: tools.Afstream(t), Args: []string{"backup", "--nats", proxy.URL(), "--dir", dir}})
//	backup.Await("serves")
//	servers[0].Kill()
//	proxy.Hang()
//	backup.Stop()
//
// A [Process] can be killed, stopped, continued and started again with the same arguments. The way between a process and others
// leads through a [Proxy], which can be slow, hang or break; or, on Linux, for root, and if the kernel allows it, the process is in a [Namespace] of
// its own, whose cable can be unplugged. The difference matters: a proxy answers for a peer that is gone, a cable does not.
//
// Whatever happens to the test, its processes end with it: they are killed when it ends, and, on Linux, when the process of the
// test does.
//
// Only tests may import it; internal/house guards that. Its own are built with the tag e2e; see make e2e.
package chaos
