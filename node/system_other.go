//go:build !linux

package node

import "runtime"

// resident returns what the runtime has from the system, in bytes: nothing else is known here.
func resident() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}
