// Package job holds the ready jobs: what stands between a command line and the engine.
//
// A job is a struct of settings with a Run method. It builds the topology, runs it, checks it if asked to, and returns a
// [Report], which writes itself as text for people or as JSON for programs. A job knows no flags and writes nothing that
// it was not given a writer for, so it serves tests and other programs as well as package cli.
//
//	h := job.DefaultHeavyHitter()
//	h.Input.Path = "trace.pcap"
//	report, err := h.Run(ctx)
//
// # What Verify compares
//
// With Verify set a job runs twice: as asked, with its failures, and once more without any. The two results are compared
// with each other and with what the theory promises (package errorbound, Params.StateBound and LossBound):
//
//   - State divergence is the largest absolute difference of any counter between the two merged sketches. Failures of
//     sketches can lose Theta, and where the source is read like a pipe also L items that were acknowledged and not yet
//     processed, of at most alpha each; failures of such a source lose Gamma items that were sent and not yet
//     acknowledged. The bound is therefore Theta for a source that can be read again and Theta + (L+Gamma)*alpha for a
//     pipe. Compensation adds at most Theta + L*alpha to a counter, so with it the former becomes Theta + L*alpha.
//     alpha is the largest weight that the input really holds: what a limit allows beyond that cannot be lost.
//   - The total weight is a counter too, but diverges by up to 1/threshold times Theta by design (package heavyhitter);
//     it is compared with a bound of its own.
//   - Items lost are those that no one could give a worker again. The bound is 0 for a source that can be read again and
//     L + Gamma for a pipe, plus errorbound.Params.Overdraft once rounding has used up Gamma.
//
// Sums of weights that are not whole numbers depend on the order of addition, so a bound counts as kept up to 1e-9 of
// the total weight. Precision, recall and the error of the estimates come from exact counts of the same input. They are
// figures, not promises: nothing fails because of them.
package job
