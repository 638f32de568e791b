package cluster

import (
	"context"
	"strings"
	"time"
)

// Line is one line of what happened to a job.
type Line struct {
	At     time.Time `json:"at"`
	Level  string    `json:"level"` // as slog names it
	Text   string    `json:"text"`
	Node   string    `json:"node,omitempty"`
	Worker string    `json:"worker,omitempty"` // as Worker.Name; empty if it concerns all
}

// maxText is how many bytes of a text are kept: a stack fits.
const maxText = 16 << 10

// Encode returns the message. What is too long of a text is cut off.
func (l Line) Encode() []byte {
	if len(l.Text) > maxText {
		l.Text = strings.ToValidUTF8(l.Text[:maxText-len(cutOff)], "") + cutOff
	}
	return encode(l)
}

const cutOff = " ..."

// DecodeLine reads a message.
func DecodeLine(message []byte) (Line, error) {
	var l Line
	return l, decode("a line of a log", message, &l) // which replaces what is no UTF-8
}

// Logs keep what happens to jobs, for people: the last so many lines of each. Any goroutine may call.
type Logs interface {
	// Append adds a line. It waits for nobody, and the line may be lost.
	Append(job string, l Line) error
	// Read calls each with the lines of a job in their order, and ends with its error. If follow is set it goes on with
	// those that come until ctx ends (nil).
	Read(ctx context.Context, job string, follow bool, each func(Line) error) error
	// Forget deletes the lines of a job. What is on its way may still come.
	Forget(ctx context.Context, job string) error
}
