package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

// arguments finds what the files in deploy give to afstream: lists of a compose file or of Kubernetes, a line of a unit.
var arguments = regexp.MustCompile(`(?m)^\s*(?:command|args): (\[.*\])$|^ExecStart=/usr/local/bin/afstream (.*)$`)

// What the files in deploy call exists: commands and flags.
func TestDeployedCommands(t *testing.T) {
	files, err := filepath.Glob("../deploy/*/*")
	require.NoError(t, err)
	seen := map[string]int{}
	for _, file := range append(files, "../deploy/compose.yaml") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range arguments.FindAllStringSubmatch(string(text), -1) {
			args := strings.Fields(m[2])
			if m[1] != "" {
				require.NoError(t, json.Unmarshal([]byte(m[1]), &args), "%s: %s", file, m[1])
			}
			if strings.HasPrefix(args[0], "-") {
				continue // of nats-server
			}
			seen[args[0]]++
			checkFlags(t, file, args)
		}
	}
	require.Equal(t, map[string]int{"controller": 3, "backup": 3, "node": 3}, seen)
}

func checkFlags(t *testing.T, file string, args []string) {
	app := newApp("afstream", os.Stdout, os.Stderr, Jobs())
	c := app.Command(args[0])
	require.NotNil(t, c, "%s: there is no command %s", file, args[0])
	for _, arg := range args[1:] {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			known := slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
			require.True(t, known, "%s: %s has no flag --%s", file, args[0], name)
		}
	}
}
