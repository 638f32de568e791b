package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/urfave/cli/v2"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:            "version",
		Usage:           "print the version",
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          printVersion,
	}
}

// versionFlag does what the command version does, for those who look for it there. That of the library would print in
// another form, which only its package state can change.
func versionFlag() cli.Flag {
	return &cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the version"}
}

func printVersion(c *cli.Context) error {
	_, err := fmt.Fprintf(c.App.Writer, "%s %s %s %s/%s\n", c.App.Name, version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is that of the main module. Go makes one up from the commit for a binary that is built in a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// programVersion tells programs apart that may not mean the same by the same flags and items: it is the same for binaries of one
// clean commit, or of one released version, and otherwise only for identical ones.
var programVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if v := sourceVersion(info); ok && v != "" {
		return v
	}
	if sum, err := executableSum(); err == nil {
		return "binary-" + sum[:16]
	}
	return "unknown" // the executable is gone, or may not be read
})

// sourceVersion says from which source a binary was built, "" if that is not certain.
func sourceVersion(info *debug.BuildInfo) string {
	if info == nil || len(info.Main.Path) == 0 {
		return ""
	}
	revision, clean := "", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			clean = s.Value == "false"
		}
	}
	switch {
	case revision != "" && clean:
		return info.Main.Path + "@" + revision
	case revision == "" && info.Main.Sum != "": // of a module as a proxy has it
		return info.Main.Path + "@" + info.Main.Version
	}
	return ""
}

// executableSum is the digest of the program that runs.
func executableSum() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
