// Package cli is the command line. [Main] runs a program that has the subcommands run, plan, experiment, those of a cluster (up,
// job, node, controller, backup) and version, with one command below run and below job submit for each [Job] it is given, so
// that a user's own binary gets everything that afstream has:
//
//	func main() {
//		jobs := append(cli.Jobs(), myJob)
//		os.Exit(cli.Main(context.Background(), os.Args, os.Stdout, os.Stderr, jobs...))
//	}
//
// Nodes make a job from its flags alone: its Run is called there, too, with an Engine that ends it as soon as it has built its
// topology. So a Job that is to run in a cluster runs what it builds by Env.Engine, as the ready jobs do or by
// job.Engine.RunTopology, passes its error on, and has no effect before. Flags whose TakesFile is set name files, which
// nodes open by their whole names.
//
// Results go to stdout, everything else to stderr. The exit code is 0 for success, 1 for a run that failed, was
// interrupted or broke a bound, and 2 for a command line that cannot work. Each flag can also be set by an environment
// variable; the flag wins.
package cli
