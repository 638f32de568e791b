package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrName is wrapped by errors about names that cannot be used.
var ErrName = errors.New("invalid name")

var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName reports with ErrName if a name of the given kind cannot be part of a subject or key.
func CheckName(kind, name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: %s %q: want 1 to 64 of A-Z a-z 0-9 _ -", ErrName, kind, name)
	}
	return nil
}

// NewID returns a name nobody has had, of 16 characters.
func NewID() string { return strings.ToLower(rand.Text()[:16]) }

// Keys of records.
const (
	LeaderKey  = "leader"
	JobPrefix  = "job."
	NodePrefix = "node."
	WishPrefix = "wish."
)

// JobKey is the key of a Job.
func JobKey(id string) string { return JobPrefix + id }

// NodeKey is the key of a Node.
func NodeKey(name string) string { return NodePrefix + name }

// CancelKey is the key of the wish that a job should end.
func CancelKey(job string) string { return WishPrefix + "cancel." + job }

// DrainKey is the key of the wish that a node should be emptied and given nothing more.
func DrainKey(node string) string { return WishPrefix + "drain." + node }

// ScaleKey is the key of the wish that an operator of a job should have another number of workers.
func ScaleKey(job string) string { return WishPrefix + "scale." + job }

// Subjects are the names of all messages of one cluster.
type Subjects struct{ Cluster string }

// Prefix begins all of them. Links and backup servers put theirs below it too.
func (s Subjects) Prefix() string { return "afstream." + s.Cluster }

// Beat is where a node says what it does; * for all nodes.
func (s Subjects) Beat(node string) string { return s.Prefix() + ".beat." + node }

// Back is where feedback for one partition of an operator arrives. Operators may have any names, so a digest stands for it.
func (s Subjects) Back(job, operator string, part int) string {
	return fmt.Sprintf("%s.back.%s.%s.%d", s.Prefix(), job, digest(operator)[:16], part)
}

// Log is where what happens to a job is written down.
func (s Subjects) Log(job string) string { return s.Prefix() + ".log." + job }

// Connection names one connection between two incarnations of workers.
type Connection struct {
	Job              string
	To               string // the receiving operator
	Input            int    // which of its inputs
	Sender, Receiver int    // indices of the workers
	SenderEpoch      uint64
	ReceiverEpoch    uint64
}

// LinkID is the id of the connection. Both ends work it out. Since no pair of epochs comes again, no id does.
func (c Connection) LinkID() string {
	return digest(fmt.Sprintf("%q %q %d %d %d %d %d", c.Job, c.To, c.Input, c.Sender, c.SenderEpoch, c.Receiver, c.ReceiverEpoch))
}

// digest is 32 characters that may be part of a subject.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}
