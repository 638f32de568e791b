package copies

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // parallel tests wait more than they work
	goleak.VerifyTestMain(m)
}
