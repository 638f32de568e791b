package experiments

import (
	"errors"
	"strconv"

	"github.com/afstream/afstream/job"
)

// All returns all experiments, in the order of the report.
func All() []Experiment {
	return []Experiment{
		HeavyHitter(),
		Series(),
		Approaches(),
		Thresholds(),
		Join(),
		LogisticRegression(),
		Convergence(),
		Consistency(),
		PartialBackup(),
		Allocation(),
	}
}

// unlessBound returns what keeps the run of a job from being recorded: not a broken bound, which comes with a report.
func unlessBound(err error) error {
	if errors.Is(err, job.ErrBound) {
		return nil
	}
	return err
}

// Columns that experiments with jobs share.
var (
	guaranteeColumn = Column{Name: "guarantee", About: "what the job promises about failures"}
	thetaColumn     = Column{Name: "theta", About: "how far the state may diverge through all failures together"}
	lColumn         = Column{Name: "l", Unit: "items", About: "how many items failures of receivers may lose, all together"}
	gammaColumn     = Column{Name: "gamma", Unit: "items", About: "how many items failures of senders may lose, all together"}
	failuresColumn  = Column{Name: "failures", About: "how many failures are injected"}
	itemsColumn     = Column{Name: "items", About: "how many items the input has"}
	struckColumn    = Column{Name: "struck", About: "how many of the failures struck before the input ended"}
	rateColumn      = Column{Name: "items_per_second", Unit: "items/s", About: "items read in a second, failures and recoveries included"}
	commitsColumn   = Column{Name: "state_commits", About: "backups of states"}
	backedUpColumn  = Column{Name: "backup_bytes", Unit: "B", About: "bytes of states and items backed up"}
	recoveryColumn  = Column{Name: "recovery_seconds", Unit: "s", About: "the longest time from a failure until the replacement ran"}
	stateColumn     = Column{Name: "state_divergence", About: "how far the final state is from that of a run without failures"}
	lostColumn      = Column{Name: "lost_items", Unit: "items", About: "items that nobody could give a worker again"}
	repeatedColumn  = Column{Name: "repeated_items", Unit: "items", About: "items whose outputs were emitted twice"}
)

// longestRecovery returns the longest recovery of a run in seconds, 0 if there was none.
func longestRecovery(failures []job.Failure) float64 {
	longest := 0.0
	for _, f := range failures {
		longest = max(longest, float64(f.RecoverySeconds))
	}
	return longest
}

func number[T int | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func decimal(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
