// Package experiments measures what tolerance for failures costs and what failures cost, and keeps the figures.
//
// An [Experiment] is a grid of cases. [Run] makes every case once per seed, appends each run to DIR/NAME.csv as soon as
// it is over, and draws up DIR/report.html from the files: one page that opens without a network, with tables, plots, and
// the figures of the source material beside those measured here. The plots are also in DIR as SVG files.
//
//	outcomes, err := experiments.Run(ctx, experiments.All(), experiments.Options{
//		Dir: "results", Plan: experiments.Plan{Scale: experiments.Small, Seed: 1, Repeat: 3},
//	})
//
// # What is compared
//
// Each run of a case states its errors together with the bounds that the theory promises for them. A run that breaks a
// bound is recorded like any other; [Run] goes on, and in the end returns an error that wraps [ErrBroken].
//
// Rates are compared between cases by the ratio to a baseline case run with the same seed, of which the median is taken.
// Seeds are the outer loop, so that a baseline and what is compared with it run minutes apart at most, and other load on
// the machine distorts both alike. It does distort them: the absolute rates of a busy machine mean little.
//
// # Going on after an interruption
//
// A run is identified by the scale, the seed, the machine (cores, version of Go, system) and the parameters of its case.
// Runs that the file already holds are not made again, so an interrupted experiment goes on where it was, and one with a
// larger Repeat adds to what there is. A line that the end of the process has torn is removed. Rows that the plan does
// not ask for, such as those of another machine, stay in the file and out of the report.
//
// # Adding an experiment
//
// An experiment is one file: what it asks, its parameters, the runs, the plots, and the claims of the source that it
// checks. All lists it. It uses the ready jobs of package job, or a topology of its own.
package experiments
