package logreg

import "github.com/afstream/afstream/stream"

// Train adds the learners and the global model to a topology and returns the weights of the model, which come at the end
// of each window. opts apply to the learners, beside stream.Workers(o.Learners), and may say how examples are dealt to
// them.
func Train(examples stream.Stream[Example], o Options, opts ...stream.Option) stream.Stream[Weight] {
	o.Learners = max(o.Learners, 1)
	opts = append([]stream.Option{stream.Workers(o.Learners)}, opts...)
	updates := stream.Then(examples, "learn", func() *Learner { return NewLearner(o) }, opts...)
	model := stream.Then(updates, "model", func() *Global { return NewGlobal(o) })
	stream.FeedbackTo[Model](model, updates)
	return model
}

var (
	_ stream.FeedbackSender[Model]          = (*Global)(nil)
	_ stream.FeedbackReceiver[Model]        = (*Learner)(nil)
	_ stream.Pacer                          = (*Learner)(nil)
	_ stream.Idempotent                     = (*Learner)(nil)
	_ stream.BatchOperator[Example, Update] = (*Learner)(nil)
)
