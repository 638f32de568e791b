package controller

import "time"

// Hasty makes o divide Theta anew as often as it can and for any gain, so that short runs see many changes.
func (o *Options) Hasty() {
	o.pace = pace{every: 200 * time.Microsecond, least: time.Nanosecond, commits: 0.5, floor: 0.1}
}
