package state_test

import (
	"fmt"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// visits is an operator with two states: visits by page, and a vector of visits by hour of the day.
type visits struct {
	*state.Group
	pages state.Map[string, int]
	hours *state.Array[float64]
}

func newVisits() *visits {
	v := &visits{Group: state.NewGroup(state.Largest), hours: state.NewArray[float64](24, state.Options{Norm: errorbound.L1})}
	v.Add("pages", 1, &v.pages) // off by at most theta for each page
	v.Add("hours", 10, v.hours) // off by at most 10 theta in all
	return v
}

// Two states in one operator have one divergence and one backup.
func ExampleGroup() {
	v := newVisits()
	v.SetTheta(100)
	for range 30 {
		v.pages.Add("/home", 1)
		v.hours.Add(9, 1)
	}
	fmt.Println("diverged by", v.StateDivergence())

	w := stream.NewStateWriter(nil, true)
	if err := v.BackupState(w); err != nil {
		fmt.Println(err)
	}
	v.BackupDurable()
	fmt.Println("after a backup by", v.StateDivergence())
	// Output:
	// diverged by 30
	// after a backup by 0
}
