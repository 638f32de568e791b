package cluster

import "time"

// Node is which process has the name of a node.
type Node struct {
	Name    string    `json:"name"`
	Session string    `json:"session"` // of the process, or of its life since it last lost its lease
	Since   time.Time `json:"since"`
	Renewal uint64    `json:"renewal"` // counts, so that each renewal is a change
}

// Encode returns the record's value.
func (n *Node) Encode() []byte { return encode(n) }

// DecodeNode reads a record.
func DecodeNode(value []byte) (*Node, error) {
	n := &Node{}
	return n, decode("a node", value, n)
}

// Leader is which controller leads.
type Leader struct {
	Controller string `json:"controller"`
	Term       uint64 `json:"term"`    // one more with every change of the leader
	Renewal    uint64 `json:"renewal"` // counts, so that each renewal is a change
}

// Encode returns the record's value.
func (l *Leader) Encode() []byte { return encode(l) }

// DecodeLeader reads a record.
func DecodeLeader(value []byte) (*Leader, error) {
	l := &Leader{}
	return l, decode("a leader", value, l)
}

// Program is a kind of job that a node can run parts of.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Phase is what a worker does.
type Phase string

// Phases, in this order; the last four are ends.
const (
	Loading  Phase = "loading"  // it has not processed anything
	Working  Phase = "running"  // it may have
	Done     Phase = "done"     // it has finished the stream, durably, and stays until it is assigned no more
	Broken   Phase = "broken"   // it ran, and has ended with Error
	Retired  Phase = "retired"  // it was asked to end, and has, without loss: all it had is durable
	Unloaded Phase = "unloaded" // it could not be loaded, see Error, and has processed nothing
)

// Status is what one incarnation of a worker does. A node tells of each one that is assigned to it.
type Status struct {
	Job      string   `json:"job"`
	Operator string   `json:"operator"`
	Index    int      `json:"index"`
	Epoch    uint64   `json:"epoch"`
	Phase    Phase    `json:"phase"`
	Level    uint64   `json:"level,omitempty"`     // the window whose close it was restored from; once it is Working
	Error    string   `json:"error,omitempty"`     // one line; of one that is Working: why it cannot retire, as it was asked to
	Stack    string   `json:"stack,omitempty"`     // of a panic
	Hopeless bool     `json:"hopeless,omitempty"`  // trying again is of no use
	WaitsFor []string `json:"waits_for,omitempty"` // what its goroutines do
	Rest     *Rest    `json:"rest,omitempty"`      // while the record has a Scaling that is not over
	Counters Counters `json:"counters"`
}

// Suspect is a backup server that fails a job on this node, or does not answer it. It is told in each beat for as long as that
// is so.
type Suspect struct {
	Job    string `json:"job"`
	Server string `json:"server"`
	Why    string `json:"why"`            // one line
	Lost   bool   `json:"lost,omitempty"` // it is there, and has lost what it was given: waiting is of no use
}

// Beat is what a node says of itself.
type Beat struct {
	Node     string    `json:"node"`
	Session  string    `json:"session"`
	Number   uint64    `json:"number"` // counts within the session: an older one than was seen is old news
	Slots    int       `json:"slots"`  // workers that it takes
	Programs []Program `json:"programs"`
	Workers  []Status  `json:"workers,omitempty"`
	Ending   bool      `json:"ending,omitempty"` // the process is about to end: what it runs should be moved off
	Suspects []Suspect `json:"suspects,omitempty"`
	Leaving  bool      `json:"leaving,omitempty"` // the process ends now: what it runs is lost
	// What follows is for people.
	Host       string `json:"host,omitempty"`
	PID        int    `json:"pid,omitempty"`
	Memory     uint64 `json:"memory,omitempty"` // bytes resident
	Limits     string `json:"limits,omitempty"` // of processor and memory, as the system keeps them
	Goroutines int    `json:"goroutines,omitempty"`
}

// Encode returns the message.
func (b *Beat) Encode() []byte { return encode(b) }

// DecodeBeat reads a message.
func DecodeBeat(message []byte) (*Beat, error) {
	b := &Beat{}
	if err := decode("a beat", message, b); err != nil {
		return nil, err
	}
	if err := CheckName("node", b.Node); err != nil {
		return nil, err
	}
	return b, CheckName("session", b.Session)
}
