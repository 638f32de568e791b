// Package cli is the command line. [Main] runs a program that has the subcommands run, plan, experiment, backup and version, with one
// command below run for each [Job] it is given, so that a user's own binary gets everything that afstream has:
//
//	func main() {
//		jobs := append(cli.Jobs(), myJob)
//		os.Exit(cli.Main(context.Background(), os.Args, os.Stdout, os.Stderr, jobs...))
//	}
//
// Results go to stdout, everything else to stderr. The exit code is 0 for success, 1 for a run that failed, was
// interrupted or broke a bound, and 2 for a command line that cannot work. Each flag can also be set by an environment
// variable; the flag wins.
package cli
