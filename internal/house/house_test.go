package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/afstream/afstream/"

// floors lists the packages from the ground up. A package may import only packages of floors below its own. A name that
// ends in / stands for all packages below it that are not listed themselves.
var floors = [][]string{
	{"ringbuf", "errorbound", "data", "internal/house", "internal/broker", "internal/cgroup", "internal/heap", "internal/chaos", "internal/soak", "internal/thorough", "cluster"},
	{"stream", "threshold"},
	{"internal/statetest"},
	{"backup", "connector", "state", "transport"},
	{"algorithms/countmin", "backup/remote", "backup/storetest", "transport/link", "cluster/overnats", "controller/machine"},
	{"algorithms/", "worker", "backup/copies", "cluster/clustertest"},
	{"algorithms/spacesaving", "controller", "controller/leader", "node"},
	{"job", "internal/jobtest", "internal/clustersim"},
	{"experiments"},
	{"cli"},
	{"cmd/afstream", "examples/", "internal/e2e"},
}

type bar struct{ from, to, why string }

// barred lists imports that the floors would allow and the house does not, with the reason.
var barred = []bar{
	{"", "internal/statetest", "only tests may"},
	{"", "internal/jobtest", "only tests may"},
	{"", "internal/chaos", "only tests may"},
	{"", "internal/soak", "it is a test"},
	{"", "internal/thorough", "only tests may"},
	{"", "backup/storetest", "only tests may"},
	{"", "cluster/clustertest", "only tests may"},
	{"algorithms/", "worker", "algorithms do not know the runtime"},
	{"algorithms/", "controller", "algorithms do not know the runtime"},
	{"algorithms/", "backup", "algorithms write elements, where to is not their business"},
	{"connector", "state", "connectors know no operators"},
	{"state", "backup", "states write elements, where to is not their business"},
	{"worker", "connector", "a worker sees sources and sinks through package stream only"},
	{"worker", "algorithms/", "a worker sees operators through package stream only"},
	{"controller", "connector", "the controller never touches items"},
	{"controller", "algorithms/", "the controller never touches items"},
}

// pure lists packages that must touch neither clock, I/O nor goroutines.
var pure = map[string][]string{
	"errorbound": {"time", "os", "net", "io", "sync", "context"},
	"threshold":  {"time", "os", "net", "io", "sync", "context"},
	// Records hold times, so it needs the type; its own tests look for calls of the clock.
	"controller/machine": {"os", "net", "io", "sync", "context"},
}

// kept lists third-party modules whose names must not leak beyond the packages that read or write with them.
var kept = map[string][]string{
	"github.com/dgraph-io/badger/": {"backup"},
	"github.com/urfave/cli/":       {"cli"},
	"github.com/nats-io/":          {"backup/remote", "internal/broker", "transport/link", "cluster/overnats", "cli"},
	"github.com/gopacket/":         {"connector"},
	"github.com/parquet-go/":       {"connector", "job"}, // job reads flights, whose rows are no keyed items
}

type pkg struct {
	ImportPath, Doc, Dir string
	Imports              []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", module+"...").Output()
	require.NoError(t, err)
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
}

func floor(name string) int {
	if i := slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, name) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(floors, func(f []string) bool {
		return slices.ContainsFunc(f, func(p string) bool { return strings.HasSuffix(p, "/") && strings.HasPrefix(name, p) })
	})
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.Doc, "Package ") && !strings.HasPrefix(p.Doc, "Command ") {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		from := floor(p.ImportPath)
		if from < 0 {
			t.Errorf("%s is not in the house: give it a floor here and a line in docs/design.md", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			checkImport(t, p.ImportPath, from, i)
		}
	}
}

// forTests says whether only tests may import a package: it may import others of which that is so.
func forTests(name string) bool {
	return slices.ContainsFunc(barred, func(b bar) bool { return b.from == "" && b.to == name })
}

func checkImport(t *testing.T, from string, floorOf int, path string) {
	t.Helper()
	to, own := strings.CutPrefix(path, module)
	if own && floor(to) >= floorOf {
		t.Errorf("%s imports %s, which is not below it", from, to)
	}
	for _, b := range barred {
		if own && strings.HasPrefix(from, b.from) && strings.HasPrefix(to, b.to) && !(b.from == "" && forTests(from)) {
			t.Errorf("%s imports %s: %s", from, to, b.why)
		}
	}
	for _, std := range pure[from] {
		if path == std || strings.HasPrefix(path, std+"/") {
			t.Errorf("%s imports %s, and is to be pure", from, path)
		}
	}
	for prefix, homes := range kept {
		if strings.HasPrefix(path, prefix) && !slices.Contains(homes, from) {
			t.Errorf("%s imports %s, which only %v may", from, path, homes)
		}
	}
}
