package errorbound_test

import (
	"fmt"

	"github.com/afstream/afstream/errorbound"
)

func ExampleHeavyHitterTarget_Plan() {
	target := errorbound.HeavyHitterTarget{
		Workload: errorbound.Workload{Items: 1e9, Alpha: 1, Workers: 4, Failures: 10},
		Error:    0.001, Confidence: 0.99, Threshold: 0.01,
	}
	plan, err := target.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v, theta %.0f, %v series\n", plan.Sketch, plan.Theta, plan.Series)
	fmt.Printf("estimates are off by %.1f%% of the total at most\n", 100*plan.Bound(false))
	// Output:
	// {Rows:2 Width:10000}, theta 1000000, geometric series
	// estimates are off by 0.1% of the total at most
}

func ExampleAllocate() {
	loads := []errorbound.Load{{Rate: 100, Cost: 1}, {Rate: 900, Cost: 1}} // the second worker's keys are hot
	shares, err := errorbound.Allocate(errorbound.Max, errorbound.Added, loads, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("shares %.2f, backups a second %.0f\n", shares, errorbound.BackupWork(loads, shares))
	fmt.Printf("with equal shares %.0f\n", errorbound.BackupWork(loads, []float64{0.5, 0.5}))
	// Output:
	// shares [0.25 0.75], backups a second 1600
	// with equal shares 2000
}
