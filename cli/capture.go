package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/node"
	"github.com/afstream/afstream/worker"
)

// runAs runs a job with flags that are not those of this process, and with a runner in place of the usual one. Environment
// variables count for nothing: what a job is must not depend on where it is made.
func (j *Job) runAs(ctx context.Context, args []string, stdout, stderr io.Writer, runner job.Runner) error {
	bare := Job{Name: j.Name, Run: func(ctx context.Context, e *Env) error {
		e.runner = runner
		return j.Run(ctx, e)
	}}
	command := bare.command(stdout, stderr)
	command.Flags = freshFlags(append(j.Flags[:len(j.Flags):len(j.Flags)], outputFlags()...))
	for _, f := range command.Flags {
		forgetEnvironment(f)
	}
	app := &cli.App{
		Name: "job", Commands: []*cli.Command{command}, Writer: stdout, ErrWriter: stderr,
		DisableSliceFlagSeparator: true, OnUsageError: usageError, HideHelp: true, HideVersion: true,
		ExitErrHandler: func(*cli.Context, error) {},
	}
	return app.RunContext(ctx, append([]string{"afstream", j.Name}, args...))
}

// capture makes a job from its flags, as far as that goes without running it.
func (j *Job) capture(ctx context.Context, args []string) (*job.Blueprint, error) {
	var b *job.Blueprint
	err := j.runAs(ctx, args, io.Discard, io.Discard, job.Capture(&b))
	switch {
	case b != nil && errors.Is(err, job.ErrCaptured):
		return b, nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("%w: job %s cannot run in a cluster: it does not run what it makes by the Engine of its Env", ErrUsage, j.Name)
}

// programs are the jobs as nodes know them.
func programs(jobs []Job) []node.Program {
	all := make([]node.Program, 0, len(jobs))
	for _, j := range jobs {
		all = append(all, node.Program{Name: j.Name, Version: programVersion(), Build: func(ctx context.Context, args []string) (*node.Blueprint, error) {
			b, err := j.capture(ctx, args)
			if errors.Is(err, ErrUsage) || errors.Is(err, job.ErrSettings) {
				err = fmt.Errorf("%w: %w", node.ErrArguments, err)
			}
			if err != nil {
				return nil, err
			}
			return forNode(b), nil
		}})
	}
	return all
}

// forNode is a blueprint as nodes want it.
func forNode(b *job.Blueprint) *node.Blueprint {
	return &node.Blueprint{
		Topology: b.Topology, Guarantee: b.Guarantee, Params: b.Params, Batch: b.Batch, Pin: b.Pin,
		Keep: func(store backup.Store, of worker.Job) { b.Keep(backup.ResultsOf(store, of.Name, of.Incarnation)) },
	}
}

// freshFlags returns flags that nobody has parsed anything into: parsing changes them.
func freshFlags(flags []cli.Flag) []cli.Flag {
	fresh := make([]cli.Flag, len(flags))
	for i, f := range flags {
		fresh[i] = freshFlag(f)
	}
	return fresh
}

// freshFlag copies a flag with the values it points to. Those of cli.Flag are pointers to structs.
func freshFlag(f cli.Flag) cli.Flag {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return f
	}
	c := reflect.New(v.Elem().Type())
	c.Elem().Set(v.Elem())
	if value := c.Elem().FieldByName("Value"); value.IsValid() && value.CanSet() {
		switch inner := value; {
		case inner.Kind() == reflect.Interface && !inner.IsNil() && inner.Elem().Kind() == reflect.Pointer && !inner.Elem().IsNil():
			copied := reflect.New(inner.Elem().Type().Elem())
			copied.Elem().Set(inner.Elem().Elem())
			value.Set(copied)
		case inner.Kind() == reflect.Pointer && !inner.IsNil():
			copied := reflect.New(inner.Type().Elem())
			copied.Elem().Set(inner.Elem())
			value.Set(copied)
		}
	}
	return c.Interface().(cli.Flag)
}

// forgetEnvironment has a flag, which is nobody else's, not look at environment variables.
func forgetEnvironment(f cli.Flag) { setField(f, "EnvVars", []string(nil)) }

// hide leaves a flag, which is nobody else's, out of help.
func hide(f cli.Flag) { setField(f, "Hidden", true) }

func setField(f cli.Flag, name string, value any) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return
	}
	if field := v.Elem().FieldByName(name); field.IsValid() && field.CanSet() && field.Type() == reflect.TypeOf(value) {
		field.Set(reflect.ValueOf(value))
	}
}

// argsOf returns the flags of a job that are set in c, by whatever means, so that they say the same everywhere: one
// argument each, and files by their whole names.
func argsOf(c *cli.Context, flags []cli.Flag) ([]string, error) {
	var args []string
	for _, f := range flags {
		name := f.Names()[0]
		if !c.IsSet(name) {
			continue
		}
		for _, value := range valuesOf(c, f) {
			if s, ok := f.(*cli.StringFlag); ok && s.TakesFile {
				var err error
				if value, err = everywhere(name, value); err != nil {
					return nil, err
				}
			}
			args = append(args, "--"+name+"="+value)
		}
	}
	return args, nil
}

// valuesOf returns what a flag is set to, as it can be written.
func valuesOf(c *cli.Context, f cli.Flag) []string {
	name := f.Names()[0]
	if _, ok := f.(*cli.GenericFlag); ok {
		return []string{fmt.Sprint(c.Generic(name))}
	}
	switch v := c.Value(name).(type) {
	case cli.StringSlice:
		return v.Value()
	case cli.IntSlice:
		return texts(v.Value())
	case cli.Int64Slice:
		return texts(v.Value())
	case cli.Float64Slice:
		return texts(v.Value())
	default:
		return []string{fmt.Sprint(v)}
	}
}

func texts[T any](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = fmt.Sprint(v)
	}
	return all
}

// everywhere returns the name of a file as other processes need it.
func everywhere(flag, name string) (string, error) {
	switch {
	case name == connector.Stdin:
		return "", fmt.Errorf("%w: --%s: stdin can be read only once, and not by nodes: write it to a file first", ErrUsage, flag)
	case strings.HasPrefix(name, connector.Builtin), strings.TrimSpace(name) == "":
		return name, nil
	}
	whole, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return whole, nil
}

// together returns flags, and those of more that are not among them by name.
func together(flags []cli.Flag, more ...cli.Flag) []cli.Flag {
	all := slices.Clone(flags)
	for _, m := range more {
		if !slices.ContainsFunc(all, func(f cli.Flag) bool { return f.Names()[0] == m.Names()[0] }) {
			all = append(all, m)
		}
	}
	return all
}
