package controller

import "time"

// Hasty makes o divide Theta anew as often as it can and for any gain, so that short runs see many changes.
func (o *Options) Hasty() {
	o.pace = pace{every: 200 * time.Microsecond, least: time.Nanosecond, commits: 0.5, floor: 0.1}
}

// Rebuild bounds what a failure may replay to rebuild a state, so that short runs see commits of places, and states that are
// backed up after all.
func (o *Options) Rebuild(items uint64) { o.rebuild = items }
