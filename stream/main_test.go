package stream

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/afstream/afstream/internal/thorough"
)

func TestMain(m *testing.M) {
	thorough.Rapid(30)
	goleak.VerifyTestMain(m)
}
