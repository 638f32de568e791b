package backup

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// badgerLog passes Badger's messages on. Its notices about what it is doing are of interest to nobody but a maintainer,
// hence debug. Messages are put together only if somebody reads them: there are several for each transaction.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(format string, args ...any)   { l.print(slog.LevelError, format, args) }
func (l badgerLog) Warningf(format string, args ...any) { l.print(slog.LevelWarn, format, args) }
func (l badgerLog) Infof(format string, args ...any)    { l.print(slog.LevelDebug, format, args) }
func (l badgerLog) Debugf(format string, args ...any)   { l.print(slog.LevelDebug, format, args) }

func (l badgerLog) print(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "badger", "text", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
