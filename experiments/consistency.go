package experiments

import "github.com/afstream/afstream/algorithms/logreg"

// consistencyModel is how far learners may be apart.
type consistencyModel struct {
	name        string
	consistency logreg.Consistency
	staleness   uint64
}

func consistencyModels() []consistencyModel {
	return []consistencyModel{
		{name: "bulk-synchronous", consistency: logreg.BulkSynchronous},
		{name: "stale-synchronous 5", consistency: logreg.StaleSynchronous, staleness: 5},
		{name: "stale-synchronous 10", consistency: logreg.StaleSynchronous, staleness: 10},
		{name: "asynchronous", consistency: logreg.Asynchronous},
	}
}

// Consistency compares how learners that are more or less in step converge.
func Consistency() Experiment {
	return Experiment{
		Name:  "consistency",
		Title: "Consistency models of distributed learning",
		Question: "The learners of the experiment on convergence wait for each other after every update, are at most 5 or 10 updates apart, or " +
			"never wait. What does waiting cost, and what does it bring? Two of four learners fail.",
		Source: "The source found nearly the same convergence for all four, on 12 small machines. It gives no figures. A model that is used " +
			"before it is up to date may still learn as fast, if learners are at the same pace. Here they share the machine's cores: one that " +
			"never waits learns for a time slice of the scheduler from a model that the others have left behind, and the steps of all add up to too much.",
		Params:  []Column{{Name: "consistency", About: "how far the learners may be apart"}, failuresColumn, thetaColumn, learnersColumn, itemsColumn},
		Figures: learningColumns(),
		Errors:  []Column{lostColumn},
		Rate:    secondsColumn.Name,
		Cases: func(p Plan) []Case {
			var cases []Case
			for _, m := range consistencyModels() {
				c := convergenceCase(learning{
					consistency: m.consistency, staleness: m.staleness, learners: 4, failures: 2, examples: p.Scale.Of(2_000_000),
					params: learningBudget(),
				})
				c.Params = append([]string{m.name}, c.Params...)
				cases = append(cases, c)
			}
			return against(cases, 0)
		},
		Plots: func(r Results) []Plot {
			p := lossPlot()
			seconds := Plot{Name: "seconds", Title: "Time to converge", Y: Axis{Label: "seconds"}}
			bars := Line{Name: "until 95% of the excess loss is gone"}
			for i, m := range consistencyModels() {
				of := r.Where("consistency", m.name)
				p.Lines = append(p.Lines, of.lossCurve(m.name))
				seconds.X.Names = append(seconds.X.Names, m.name)
				bars.X, bars.Y = append(bars.X, float64(i)), append(bars.Y, of.Value(secondsColumn.Name))
			}
			seconds.Lines = []Line{bars}
			return []Plot{p, seconds}
		},
	}
}
