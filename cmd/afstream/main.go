// Command afstream runs stream-processing jobs whose errors after failures are bounded.
package main

import (
	"context"
	"os"

	"github.com/afstream/afstream/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args, os.Stdout, os.Stderr, cli.Jobs()...))
}
