// Package heap sets how much garbage a process may gather before it is collected. By default that is as much as is in use, so a
// node whose workers hold a gigabyte takes two. But the work of a collection is to follow pointers, and counters, sketches and
// models have none: half the memory of such a process saves the collector next to nothing.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// spare is how much garbage there may be in any case: below it collections would come too often to be cheap.
const spare = 64 << 20

// Spare makes this process gather as much garbage as it has memory in use that may hold pointers, and at least 64 MiB, but
// never more than Go would. The collector then costs what it costs a process that has nothing else. It looks at that after each
// collection, for as long as the process lives, unless GOGC says what the user wants. It is for main.
func Spare() {
	if os.Getenv("GOGC") != "" {
		return
	}
	w := &watch{percent: usual}
	runtime.SetFinalizer(&cycle{watch: w}, (*cycle).ended)
}

// usual is Go's percentage.
const usual = 100

// watch is what is known from one collection to the next.
type watch struct{ percent int }

// cycle is garbage, so that each collection calls its finalizer: there is no other word of its end.
type cycle struct{ watch *watch }

func (c *cycle) ended() {
	c.watch.adjust()
	runtime.SetFinalizer(c, (*cycle).ended)
}

func (w *watch) adjust() {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 || s[1].Value.Kind() != metrics.KindUint64 {
		return
	}
	want := percent(s[0].Value.Uint64(), s[1].Value.Uint64())
	if d := want - w.percent; d > w.percent/8 || d < -w.percent/8 { // each change stops the world for a moment
		w.percent = want
		debug.SetGCPercent(want)
	}
}

// percent returns how much garbage may come on top of what is in use, as a percentage of it, if so much of that has to be looked
// through by the collector.
func percent(live, scanned uint64) int {
	room := max(min(scanned, live), spare)
	if room >= live {
		return usual
	}
	return max(int(room*usual/live), 1)
}
