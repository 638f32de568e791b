// Package logreg is online logistic regression: it learns from a stream of labelled examples the probability that the
// next is positive, and predicts each before it learns from it.
//
//	lines := stream.From(t, "lines", connector.Lines("agaricus.train"))
//	examples := stream.Then(lines, "parse", func() *logreg.ParseLines { return logreg.ParseLibsvm(logreg.Libsvm{First: 1}, logreg.FailOnBad) })
//	model := logreg.Train(examples, logreg.Options{Bits: 7, Learners: 4, MaxFeatures: 22})
//	stream.To(model, "model", connector.JSONL[logreg.Weight](os.Stdout))
//
// # Method
//
// A [Learner] for each partition makes a step of stochastic gradient descent for each example, in the weights of its
// features only: of rate/sqrt(t) for the t-th example ([SGD]) or with a rate for each weight that falls as its gradients
// add up ([AdaGrad]). After every [Options.Every] examples it sends the sums of its steps to [Global], whose model is the
// sum over all learners, and is sent back what the others have made of the weights meanwhile. [Consistency] says how far
// the learners may be apart. A single learner sends at the ends of windows only, when the model is emitted.
//
// What the learners send are sums since the beginning and not differences, and what they are sent back is all that they
// have not confirmed. So a message that comes twice does no harm, one that is lost or replaced by a later one is made good
// by the next, and the last update of each learner holds everything: at the end the model is exactly the sum of what the
// learners have, whatever became of messages on the way.
//
// Categories become features by the hashing trick ([Hasher]); [Libsvm] reads sparse examples.
//
// # What failures cost
//
// The state of a learner is the sum of its own steps, measured by the Euclidean norm; alpha is [Options.Alpha]. Beta is
// the pieces of a whole model. The model is the sum over the learners, hence by the triangle inequality it differs by at most
// the sum of their differences: the states are Added, each learner gets 1/n of Theta, and the final model differs from
// what the same learners would have without the loss by at most Theta + L*alpha. Global diverges by what updates it has
// lost, until the next ones. [Regret] says what that does to the quality: the mean regret still goes to 0, and does
// not depend on the number of failures. [LossBound] is the same for one prediction. [Distance] measures it.
//
// Changes of weights can cancel. If examples are at risk, set [Options.PathLength].
//
// # Quality
//
// [Prequential] counts log-loss, accuracy and the area under the curve of predictions made before their label was learned
// from, so that no test set is needed.
package logreg
