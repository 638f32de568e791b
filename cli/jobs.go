package cli

// Jobs returns the jobs that come with afstream, in alphabetical order.
func Jobs() []Job {
	return []Job{Aggregate(), Distinct(), Grep(), HeavyHitter(), Histogram(), Join(), LogisticRegression(), Sample(), WordCount()}
}
