package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
)

func (s *shell) logsCommand() *cli.Command {
	return s.command(asked{
		name: "logs", args: "ID", most: 1, usage: "print what happened to a job: the last 2,000 lines of its nodes",
		flags: []cli.Flag{&cli.BoolFlag{
			Name: "follow", Aliases: []string{"f"}, Category: categoryAnswer, EnvVars: env("follow"),
			Usage: "go on with the lines to come until interrupted",
		}},
		run: jobLogs,
	})
}

func jobLogs(ctx context.Context, a *ask) error {
	id := a.Flags.Args().First()
	if _, _, err := a.find(ctx, id); err != nil {
		return err
	}
	return a.logs.Read(ctx, id, a.Flags.Bool("follow"), func(l cluster.Line) error {
		text := lineText(l)
		if a.json {
			b, err := json.Marshal(l)
			if err != nil {
				return err
			}
			text = string(b)
		}
		_, err := fmt.Fprintln(a.stdout, text)
		return err
	})
}

// lineText is a line of a log for people. What follows its first line, as in a stack, is indented.
func lineText(l cluster.Line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-5s", clock(l.At), l.Level)
	for _, where := range []string{l.Node, l.Worker} {
		if where != "" {
			fmt.Fprintf(&b, " %s", where)
		}
	}
	return b.String() + " " + strings.ReplaceAll(strings.TrimRight(l.Text, "\n"), "\n", "\n    ")
}
