package threshold

import "fmt"

// Action is what [Backup.Decide] tells the compute goroutine to do.
type Action uint8

const (
	// Continue: go on processing; no backup is due.
	Continue Action = iota
	// Start: begin a backup now and go on processing while it is being written.
	Start
	// Wait: nothing more may be processed, and the items just processed may not count as processed, until the backup
	// in flight is durable. If none is in flight, begin one first. Then ask Decide again.
	Wait
)

// String returns the lower-case name of the action.
func (a Action) String() string {
	switch a {
	case Continue:
		return "continue"
	case Start:
		return "start"
	case Wait:
		return "wait"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}
