//go:build e2e && unix

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/afstream/afstream/internal/chaos"
)

var (
	seed  = flag.Uint64("e2e.seed", rand.Uint64()>>32, "when, and to whom, faults happen")
	tools = chaos.NewTools()
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := tools.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
