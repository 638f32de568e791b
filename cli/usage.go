package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// unknownCommand is what a command that has only subcommands does itself.
func unknownCommand(c *cli.Context) error {
	if what := map[string]string{"run": "job", "plan": "job", "submit": "job", "job": "command"}[c.Command.Name]; !c.Args().Present() && what != "" {
		return fmt.Errorf("%w: %s which %s? There are: %s. See %s --help",
			ErrUsage, c.Command.Name, what, strings.Join(commandNames(c.Command.Subcommands, false), ", "), c.Command.HelpName)
	}
	if !c.Args().Present() {
		return cli.ShowAppHelp(c)
	}
	name := c.Args().First()
	hint := "."
	if s := nearest(name, commandNames(c.Command.Subcommands, true)); s != "" {
		hint = fmt.Sprintf(", did you mean %q?", s)
	}
	return fmt.Errorf("%w: unknown command %q%s See %s --help", ErrUsage, name, hint, c.Command.HelpName)
}

// commandNames returns what the commands are called, that for help only if asked for.
func commandNames(commands []*cli.Command, help bool) []string {
	var names []string
	for _, c := range commands {
		if help || c.Name != "help" {
			names = append(names, c.Names()...)
		}
	}
	return names
}

// usageError adds the flag that a mistyped one may have meant.
func usageError(c *cli.Context, err error, _ bool) error {
	text := plainFlagError(err.Error(), c.Command.Flags)
	hint := "."
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		text = "unknown flag --" + name
		var names []string
		for _, f := range c.Command.Flags {
			names = append(names, f.Names()...)
		}
		if s := nearest(name, names); s != "" {
			hint = fmt.Sprintf(", did you mean --%s?", s)
		}
	}
	return fmt.Errorf("%w: %s%s See %s --help", ErrUsage, strings.TrimSuffix(text, "."), hint, c.Command.HelpName)
}

// plainFlagError says what the flag package says in the words of the help: with two dashes, with what is wanted, and
// without the name of the function that found out.
func plainFlagError(text string, flags []cli.Flag) string {
	text = strings.Replace(text, " for flag -", " for -", 1)
	text = strings.Replace(text, " for -", " for --", 1)
	if before, ok := strings.CutSuffix(text, ": parse error"); ok {
		_, name, _ := strings.Cut(before, " for --")
		want := "a number"
		for _, f := range flags {
			if f.Names()[0] != name {
				continue
			}
			switch f.(type) {
			case *cli.IntFlag:
				want = "a whole number"
			case *cli.BoolFlag:
				want = "true or false"
			}
		}
		text = before + ": want " + want
	}
	text, _, _ = strings.Cut(text, ": strconv.")
	return text
}
