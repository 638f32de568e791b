// Command afstream runs stream-processing jobs whose errors after failures are bounded.
package main

import (
	"context"
	"os"

	"github.com/afstream/afstream/cli"
	"github.com/afstream/afstream/internal/heap"
)

func main() {
	heap.Spare()
	os.Exit(cli.Main(context.Background(), os.Args, os.Stdout, os.Stderr, cli.Jobs()...))
}
