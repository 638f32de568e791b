package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/afstream/afstream/cluster"
)

// logOf returns where what happens to an incarnation of a worker is logged.
func (h *host) logOf(job string, w *cluster.Worker) *slog.Logger {
	log := h.o.Log.With("job", job, "operator", w.Operator, "worker", w.Index, "epoch", w.Epoch)
	if h.o.OnLog == nil {
		return log
	}
	return slog.New(slog.NewMultiHandler(log.Handler(), &lines{
		to:    func(l cluster.Line) { h.o.OnLog(job, l) },
		line:  cluster.Line{Node: h.o.Name, Worker: w.Name()},
		attrs: []slog.Attr{slog.Uint64("epoch", w.Epoch)},
	}))
}

// lines is a slog.Handler that makes lines for people.
type lines struct {
	to    func(cluster.Line)
	line  cluster.Line // what all have in common
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := l.line
	line.At, line.Level = r.Time.UTC(), r.Level.String()
	var text strings.Builder
	text.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&text, ", %s %s", a.Key, a.Value.Resolve())
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	line.Text = text.String()
	l.to(line)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	with.attrs = append(slices.Clone(l.attrs), attrs...)
	return &with
}

// WithGroup implements slog.Handler. Nobody here has groups.
func (l *lines) WithGroup(string) slog.Handler { return l }
