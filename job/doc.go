// Package job holds the ready jobs: what stands between a command line and the engine.
//
// A job is a struct of settings with a Run method. It builds the topology, runs it, checks it if asked to, and returns a
// [Report], which writes itself as text for people or as JSON for programs. A job knows no flags and writes nothing that
// it was not given a writer for, so it serves tests, experiments and other programs as well as package cli.
//
//	h := job.DefaultHeavyHitter()
//	h.Input.Path = "trace.pcap"
//	report, err := h.Run(ctx)
//
// All jobs are run and checked by the same code ([Engine], run.go); one of its own has only an input, a topology, an
// answer, and a comparison.
//
// # Elsewhere
//
// A job can also be made without being run ([Capture]), run by others from its [Blueprint], with its results in a
// connector.Vault, and be reported and verified later by the same code ([Recalled]). Of what failures cost, only their number
// is known then: items lost or repeated count as none, and rows left out are not counted.
//
// # What Verify compares
//
// With Verify set a job runs twice: as asked, with its failures, and once more without any, and works out the exact
// answer from its input in another way as well. Each figure that theory bounds is a [Check]; a broken one makes Run
// return [ErrBound]. The others are figures, not promises: nothing fails because of them.
//
// What a guarantee promises is told by Theta, L and Gamma (package errorbound): as they were set under Approximate; 0, 0
// and 1 under ErrorFree; all 0 under MiniBatch and UpstreamBackup; nothing under None. Gamma is overdrawn once rounding has used it up
// (errorbound.Params.Overdraft), and L of an operator that emits as it processes likewise: it needs at least one item
// between two backups. These are added, for the failures that there really were. In what follows, alpha and beta are
// the largest that the input really holds: what a limit allows beyond that cannot be lost. A source read like a pipe can
// lose the L items that its receivers had acknowledged and not processed, and Gamma that were on their way; one that can
// be read again loses none.
//
//   - heavy-hitter. State divergence is the largest absolute difference of any counter between the two merged sketches:
//     at most Theta, and for a pipe (L+Gamma)*alpha more. Compensation adds at most Theta + L*alpha to a counter, so with
//     it and no pipe the bound is Theta + L*alpha. The total weight is a counter too, but diverges by up to 1/threshold
//     times Theta by design (package heavyhitter), and has a bound of its own. Precision, recall and the error of the
//     estimates come from exact counts. With SpaceSaving, where summaries cannot be compared with each other, state
//     divergence is by how much any estimate is too low, within the same bounds; the total is within them too; no estimate
//     is more than total/capacity too high; and without failures none is too low.
//   - wordcount. State divergence is the largest difference of a count, or in the L1 norm the sum of all, from counts made
//     by another code, with which the run without failures must agree. At most Theta, and for a pipe (L+Gamma)*alpha more.
//     With Split, words are at risk between operators: L + Gamma words more; and blocks can be lost or split twice before
//     they are acknowledged: L*alpha.
//   - aggregate. State divergence is the largest difference of a count or of a sum, see Aggregate.Measure, or in the L1
//     norm the sum of all: at most Theta, and for a pipe (L+Gamma)*alpha more.
//   - distinct. State divergence is how many registers of the sketch are lower than those of a sketch of all keys made at
//     once: at most Theta, and for a pipe L+Gamma more. None may be higher.
//   - sample. State divergence is how many entries are in one of the two samples only: at most Theta. Where items were lost
//     before they were drawn from, those after them are drawn anew: the sample is as random as before and another one, so
//     that nothing is promised. How many items it was drawn from is off by at most Theta times the items that an entry
//     stands for, and for a pipe L+Gamma more. All entries must be items of the input, in any run. Whether the sample is a
//     fair one shows in the mean weight that it estimates, beside the exact one in units of its standard error: a figure.
//   - histogram. State divergence is how many numbers are missing from the bins, wherever they were: at most Theta, and for a
//     pipe L+Gamma more. No rank can then be off by more, and every exact quantile lies between the values that follow
//     (histogram.Range). Without failures no number is missing, and quantiles are as accurate as the layout says.
//   - grep. A line is lost on its way, Gamma, or in the sink between its acknowledgement and its flush, L; for a pipe come
//     (L+Gamma)*beta. A block that was searched and not acknowledged is searched again: L*beta lines may come twice, and
//     L more that the sink has flushed and not acknowledged.
//   - join. A row that states have lost, Theta, or that was lost before it was processed, L, misses at most beta partners;
//     pairs are lost, and come twice out of the sink, as lines in grep. Rows that are processed again bring L*beta pairs
//     twice.
//   - logistic-regression. Only with one learner does nothing but failures make two runs differ, and only by SGD whose
//     steps are not too long can nothing drive two models further apart than failures have (logreg.LossBound). Then the
//     Euclidean distance of the models is at most Theta, for a pipe (L+Gamma)*alpha more. In all other cases models
//     and losses stand side by side. With one learner the run without failures must agree with a loop written plainly.
//
// Under MiniBatch and UpstreamBackup nothing is lost, and the L of what is processed twice is, for each failure of the
// operator, a batch for each partition of the worker, or two under UpstreamBackup, which does not stop for its commits.
//
// Sums of numbers that are not whole depend on the order of addition, so a bound on them counts as kept up to 1e-9 of the
// total.
package job
