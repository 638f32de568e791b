package cluster

import (
	"fmt"
	"slices"
	"time"
)

// ScalePhase is how far a change of the number of workers of an operator has come.
type ScalePhase string

// Phases, in this order. A job is held up in those from ScaleHold to ScaleLayout. From ScaleFreeze on there is no way back.
const (
	ScaleAsked   ScalePhase = "asked"    // nodes say whether it can be done; nothing is held yet
	ScaleHold    ScalePhase = "holding"  // sources stop where they are
	ScalePause   ScalePhase = "pausing"  // all workers come to rest, with nothing in flight and all they have durable
	ScaleFreeze  ScalePhase = "freezing" // they are, and their partitions are being closed for good
	ScaleLayout  ScalePhase = "dividing" // the workers of the next layout take over what these have saved
	ScaleDrop    ScalePhase = "dropping" // they have, durably, and the partitions of the layout before are being deleted
	ScaleDone    ScalePhase = "done"
	ScaleRefused ScalePhase = "refused" // the job goes on as it was, see Scaling.Why
)

// Over says whether nothing more comes of it.
func (p ScalePhase) Over() bool { return p == ScaleDone || p == ScaleRefused }

// Holds says whether workers are to be held, or at rest, in the round that the record names.
func (p ScalePhase) Holds() bool { return p == ScaleHold || p == ScalePause || p == ScaleFreeze }

// Scaling is a change of the number of workers of an operator: asked for, under way, or the last one that was. See worker.Hold for
// the rounds.
type Scaling struct {
	ScaleWish
	Phase  ScalePhase `json:"phase"`
	Former int        `json:"former"` // workers that the operator had before
	// Round is that of ScaleAsked, ScaleHold and ScalePause. It is another one whenever a worker was replaced, and never one
	// that the job has had: what a node says of an earlier one is worth nothing.
	Round  uint64    `json:"round"`
	Window uint64    `json:"window,omitempty"` // in ScalePause: the one that sources go on to end
	Since  time.Time `json:"since"`
	Ended  time.Time `json:"ended,omitzero"`
	Why    string    `json:"why,omitempty"` // why it was refused, one line
}

// ScaleWish is the value of a wish to change the number of workers of an operator.
type ScaleWish struct {
	ID       string `json:"id"` // that nobody has used
	Operator string `json:"operator"`
	Workers  int    `json:"workers"`
}

// Encode returns the wish's value.
func (w *ScaleWish) Encode() []byte { return encode(w) }

// DecodeScaleWish reads a wish.
func DecodeScaleWish(value []byte) (*ScaleWish, error) {
	w := &ScaleWish{}
	if err := decode("a wish", value, w); err != nil {
		return nil, err
	}
	return w, CheckName("wish", w.ID)
}

// Rest is how far a worker has come with the change that its job's record asks for.
type Rest struct {
	Round   uint64 `json:"round"`             // of the record that the node goes by
	Cannot  string `json:"cannot,omitempty"`  // why it will never come to rest, or be divided; one line
	Held    uint64 `json:"held,omitempty"`    // of a source: the round in which it has stopped
	Window  uint64 `json:"window,omitempty"`  // of a source: the last window whose end precedes items that it has sent
	Paused  uint64 `json:"paused,omitempty"`  // the round in which it is at rest, durably
	Settled bool   `json:"settled,omitempty"` // all that it has taken over from the layout before is durable in its own
}

// CannotScale says why the number of workers of an operator cannot become n, as far as the record tells; nil if nothing is in
// the way. The workers may know more.
func (j *Job) CannotScale(operator string, n int) error {
	i := slices.IndexFunc(j.Spec.Operators, func(o Operator) bool { return o.Name == operator })
	if i < 0 {
		return fmt.Errorf("there is no operator %q", operator)
	}
	switch o := j.Spec.Operators[i]; {
	case j.State.Ended():
		return fmt.Errorf("the job has ended: it is %s", j.State)
	case o.Source:
		return fmt.Errorf("operator %q is a source, which has as many partitions as its input", operator)
	case o.Sink:
		return fmt.Errorf("operator %q is a sink, which has as many partitions as its result", operator)
	case n < 1:
		return fmt.Errorf("operator %q needs at least one worker, not %d", operator, n)
	case n*o.Compute > maxPartitions:
		return fmt.Errorf("operator %q can have %d workers of %d goroutines at most, not %d", operator, maxPartitions/o.Compute, o.Compute, n)
	case n == o.Workers:
		return fmt.Errorf("operator %q has %d workers already", operator, n)
	case len(j.Spec.Backups) == 0:
		return fmt.Errorf("the job has no backups, by which state gets from one worker to another")
	}
	larger := j.Clone()
	larger.resize(i, n)
	return larger.CheckSize()
}

// maxPartitions bounds those of an operator that is scaled, as job.Engine does for others.
const maxPartitions = 1 << 10

// resize changes the number of workers of operator i. Those that are new have nothing but their names.
func (j *Job) resize(i, n int) {
	o := &j.Spec.Operators[i]
	first := slices.IndexFunc(j.Workers, func(w Worker) bool { return w.Operator == o.Name })
	last := first + o.Workers
	j.Workers = slices.Delete(j.Workers, first+min(n, o.Workers), last)
	for index := o.Workers; index < n; index++ {
		j.Workers = slices.Insert(j.Workers, first+index, Worker{Operator: o.Name, Index: index})
	}
	o.Workers = n
}

// Divide makes the record that of the next layout, in which the operator that is scaled has another number of workers. No worker
// has a node, and each is given an epoch that no worker has had when it gets one. What was spent of the error budget stays
// spent: all workers of the operator have as many failures as the one that had most.
func (j *Job) Divide() {
	epoch := uint64(0)
	var old []Worker // of the operator
	var failedAt [][]uint64
	for _, w := range j.Workers {
		epoch = max(epoch, w.Epoch)
		if w.Operator == j.Scaling.Operator {
			old, failedAt = append(old, w), append(failedAt, w.FailedAt)
		}
	}
	worst := WorstFailures(failedAt...)
	j.resize(slices.IndexFunc(j.Spec.Operators, func(o Operator) bool { return o.Name == j.Scaling.Operator }), j.Scaling.Workers)
	for i := range j.Workers {
		w := &j.Workers[i]
		w.Node, w.Session, w.Retire, w.Done, w.Epoch = "", "", false, false, epoch
		if w.Operator == j.Scaling.Operator {
			w.Failures, w.FailedAt = uint64(len(worst)), slices.Clone(worst)
			for _, gone := range old[min(len(old), j.Scaling.Workers):] {
				if w.Index == 0 {
					w.Past.Add(gone.Past)
				}
			}
		}
		w.FailedIn = make([]uint64, w.Failures) // in an earlier layout
	}
	j.Layout = max(j.Layout, 1) + 1
}

// WorstFailures returns, for workers that take the place of others, where their failures are to be taken to have struck: as many as
// the one had that had most, and the i-th last not before the i-th last of any. So, whenever they are asked, they remember as many
// failures as any of the others would.
func WorstFailures(failedAt ...[]uint64) []uint64 {
	var worst []uint64 // last first
	for _, of := range failedAt {
		for i, at := range slices.Backward(of) {
			if n := len(of) - 1 - i; n < len(worst) {
				worst[n] = max(worst[n], at)
			} else {
				worst = append(worst, at)
			}
		}
	}
	slices.Reverse(worst)
	return worst
}

// FormerWorkers returns how many workers an operator had in the layout before the present one.
func (j *Job) FormerWorkers(o *Operator) int {
	if s := j.Scaling; s != nil && s.Operator == o.Name && !s.Phase.Holds() && s.Phase != ScaleAsked {
		return s.Former
	}
	return o.Workers
}

func (j *Job) checkScaling() error {
	s := j.Scaling
	if s == nil {
		return nil
	}
	if err := CheckName("wish", s.ID); err != nil {
		return err
	}
	i := slices.IndexFunc(j.Spec.Operators, func(o Operator) bool { return o.Name == s.Operator })
	if i < 0 {
		if s.Phase == ScaleRefused {
			return nil
		}
		return fmt.Errorf("operator %q is to have %d workers, and there is none", s.Operator, s.Workers)
	}
	has := j.Spec.Operators[i].Workers
	switch s.Phase {
	case ScaleAsked, ScaleHold, ScalePause, ScaleFreeze:
		if s.Former != has {
			return fmt.Errorf("operator %q had %d workers, and has %d before that has changed", s.Operator, s.Former, has)
		}
	case ScaleLayout, ScaleDrop:
		if s.Workers != has || j.Layout < 2 {
			return fmt.Errorf("operator %q has %d workers in layout %d, not %d", s.Operator, has, j.Layout, s.Workers)
		}
	case ScaleDone, ScaleRefused:
	default:
		return fmt.Errorf("scaling of %q is %q", s.Operator, s.Phase)
	}
	return nil
}
