package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
)

// TestPlanIsWhatRunTakes compares the two commands: the same target must lead to the same settings.
func TestPlanIsWhatRunTakes(t *testing.T) {
	target := strings.Fields("--items 100k --confidence 0.95 --expect-failures 7 --workers 3 --threshold 0.02 --memory 4M")
	code, stdout, stderr := run(t.Context(), append([]string{"plan", "heavy-hitter", "-o", "json", "--error", "0.004"}, target...)...)
	require.Equal(t, cli.ExitOK, code, stderr)
	var plan map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &plan))
	report := heavyHitters(t, append([]string{"--target-error", "0.004"}, target...)...)
	for _, field := range []string{"theta", "l", "gamma", "series", "workers", "compute"} {
		require.Equal(t, plan[field], report[field], field)
	}
	of := report["plan"].(map[string]any)
	for field, value := range plan {
		if field != "command" {
			require.Equal(t, value, of[field], field)
		}
	}
}

// TestEveryPlanFlagSaysWhatItDoes looks at the help, which is the manual.
func TestEveryPlanFlagSaysWhatItDoes(t *testing.T) {
	_, help, _ := run(t.Context(), "plan", "heavy-hitter", "--help")
	for _, flag := range []string{
		"error", "confidence", "expect-failures", "memory", "threshold", "compensate", "series", "source-replay", "items",
		"alpha", "mean-weight", "heaviest", "workers", "compute", "rate", "commits", "output", "log-level",
	} {
		require.Contains(t, help, "--"+flag)
	}
	_, help, _ = run(t.Context(), "run", "heavy-hitter", "--help")
	for _, flag := range []string{"target-error", "confidence", "expect-failures", "memory", "target-total"} {
		require.Contains(t, help, "--"+flag+" ")
	}
}
