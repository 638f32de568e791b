package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

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
