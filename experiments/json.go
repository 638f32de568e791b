package experiments

import (
	"encoding/json"

	"github.com/afstream/afstream/job"
)

// jsonOutcome is an Outcome for programs. Figures that are not numbers, and bounds where nothing is promised, are null.
type jsonOutcome struct {
	Experiment string     `json:"experiment"`
	Made       int        `json:"runs_made"`
	Kept       int        `json:"runs_kept"`
	Broken     int        `json:"runs_broken"`
	Cases      []jsonCase `json:"cases"`
}

type jsonCase struct {
	Params  map[string]string     `json:"params"`
	Runs    int                   `json:"runs"`
	Broken  int                   `json:"broken"`
	Figures map[string]job.Number `json:"figures"`
	Ratio   job.Number            `json:"ratio"`
	Errors  map[string]jsonError  `json:"errors"`
}

type jsonError struct {
	Measured job.Number `json:"measured"`
	Bound    job.Number `json:"bound"`
}

// MarshalJSON implements json.Marshaler.
func (o Outcome) MarshalJSON() ([]byte, error) {
	out := jsonOutcome{Experiment: o.Name, Made: o.Made, Kept: o.Kept, Broken: o.Broken, Cases: []jsonCase{}}
	for _, s := range o.Summaries {
		c := jsonCase{
			Params: make(map[string]string), Runs: s.Runs, Broken: s.Broken, Ratio: job.Number(s.Ratio),
			Figures: make(map[string]job.Number), Errors: make(map[string]jsonError),
		}
		for i, p := range o.experiment.Params {
			c.Params[p.Name] = s.Params[i]
		}
		for i, f := range o.experiment.Figures {
			c.Figures[f.Name] = job.Number(s.Figures[i])
		}
		for i, e := range o.experiment.Errors {
			c.Errors[e.Name] = jsonError{Measured: job.Number(s.Errors[i].Value), Bound: job.Number(s.Errors[i].Bound)}
		}
		out.Cases = append(out.Cases, c)
	}
	return json.Marshal(out)
}
