package cluster

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func spec() Spec {
	return Spec{Name: "wordcount", Version: "v1", Args: []string{"--input", "book.txt"}, Backups: []string{"main", "b2"}, Operators: []Operator{
		{Name: "text", Workers: 1, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 2}, {Name: "table", Workers: 1, Compute: 1, Sink: true},
	}}
}

func TestJobIsReadBackAsWritten(t *testing.T) {
	j := NewJob("a-1", spec(), time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC))
	require.Len(t, j.Workers, 4)
	w := j.Worker("count", 1)
	*w = Worker{Operator: "count", Index: 1, Node: "n", Session: "s", Epoch: 3, Failures: 2, FailedAt: []uint64{7, Never}, FailedIn: []uint64{1, 3}, Retire: true, Past: Counters{Items: 9}}
	j.Note(Incident{Operator: "count", Worker: 1, What: "the node is dead", Failure: true})
	back, err := DecodeJob(j.Encode())
	require.NoError(t, err)
	require.Equal(t, j, back)
	require.Nil(t, j.Worker("count", 2))
}

func TestCloneSharesNothing(t *testing.T) {
	j := NewJob("a", spec(), time.Now())
	j.Workers[0].Epoch, j.Workers[0].Failures, j.Workers[0].FailedAt, j.Workers[0].FailedIn = 2, 1, []uint64{3}, []uint64{1}
	j.Note(Incident{What: "x"})
	before := string(j.Encode())
	c := j.Clone()
	c.Workers[0].FailedAt[0], c.Workers[0].FailedIn[0], c.Workers[1].Node, c.History[0].What, c.State = 4, 2, "n", "y", Failed
	c.View[0] = "b3"
	require.Equal(t, before, string(j.Encode()))
}

func TestFail(t *testing.T) {
	w := Worker{Epoch: 4}
	w.Fail()
	w.Epoch = 6
	w.Fail()
	require.Equal(t, Worker{Epoch: 6, Failures: 2, FailedAt: []uint64{Never, Never}, FailedIn: []uint64{4, 6}}, w)
}

func TestHistoryKeepsTheLast(t *testing.T) {
	j := NewJob("a", spec(), time.Now())
	for i := range maxHistory + 10 {
		j.Note(Incident{Worker: i})
	}
	require.Len(t, j.History, maxHistory)
	require.Equal(t, 10, j.History[0].Worker)
	require.Equal(t, maxHistory+10, j.Incidents)
}

func TestRecordsThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(j *Job){
		"id":                       func(j *Job) { j.ID = "a.b" },
		"a worker too few":         func(j *Job) { j.Workers = j.Workers[:3] },
		"a worker too many":        func(j *Job) { j.Workers = append(j.Workers, Worker{Operator: "more"}) },
		"workers in another order": func(j *Job) { j.Workers[1], j.Workers[2] = j.Workers[2], j.Workers[1] },
		"a view of nothing":        func(j *Job) { j.View = nil },
		"a view of others":         func(j *Job) { j.View = []string{"main", "b3"} },
		"a view of one twice":      func(j *Job) { j.View = []string{"b2", "b2"} },
		"a server twice":           func(j *Job) { j.Spec.Backups = []string{"main", "b2", "b2"} },
		"a server without a name":  func(j *Job) { j.Spec.Backups, j.View = []string{""}, []string{""} },
		"a view without servers":   func(j *Job) { j.Spec.Backups = nil },
		"no compute goroutine":     func(j *Job) { j.Spec.Operators[0].Compute = 0 },
		"too many workers":         func(j *Job) { j.Spec.Operators[0].Workers = 1 << 30 },
		"failure without a place":  func(j *Job) { j.Workers[0].Epoch, j.Workers[0].Failures = 3, 1 },
		"more failures than lives": func(j *Job) {
			j.Workers[0].Epoch, j.Workers[0].Failures, j.Workers[0].FailedAt, j.Workers[0].FailedIn = 1, 2, []uint64{1, 2}, []uint64{1, 2}
		},
		"two failures of one life": func(j *Job) {
			j.Workers[0].Epoch, j.Workers[0].Failures, j.Workers[0].FailedAt, j.Workers[0].FailedIn = 3, 2, []uint64{1, 2}, []uint64{2, 2}
		},
		"failures of no life": func(j *Job) {
			j.Workers[0].Epoch, j.Workers[0].Failures, j.Workers[0].FailedAt = 3, 1, []uint64{1}
		},
	} {
		j := NewJob("a", spec(), time.Now())
		spoil(j)
		_, err := DecodeJob(j.Encode())
		require.ErrorIs(t, err, ErrRecord, name)
	}
	_, err := DecodeJob([]byte("{"))
	require.ErrorIs(t, err, ErrRecord)
}

// TestCheckSize: what may become too large for a message is known when it is submitted.
func TestCheckSize(t *testing.T) {
	s := spec()
	require.NoError(t, NewJob("a", s, time.Now()).CheckSize())
	s.Operators[1].Workers = 500
	require.NoError(t, NewJob("a", s, time.Now()).CheckSize())
	s.Operators[1].Workers = 5000
	require.ErrorContains(t, NewJob("a", s, time.Now()).CheckSize(), "use fewer workers")
	s.Operators[1].Workers = 2
	s.Args = []string{strings.Repeat("x", 1<<20)}
	require.ErrorIs(t, NewJob("a", s, time.Now()).CheckSize(), ErrTooLarge)
}

func TestCountersAddUp(t *testing.T) {
	var a, b Counters
	fields := reflect.ValueOf(&b).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetUint(uint64(i + 1))
	}
	a.Add(b)
	a.Add(b)
	sum := reflect.ValueOf(a)
	for i := range sum.NumField() {
		want := uint64(2 * (i + 1))
		if sum.Type().Field(i).Name == "Read" {
			want /= 2
		}
		require.Equal(t, want, sum.Field(i).Uint(), sum.Type().Field(i).Name)
	}
}

func TestNames(t *testing.T) {
	require.NoError(t, CheckName("node", NewID()))
	for _, bad := range []string{"", "a.b", "a b", "*", ">", strings.Repeat("a", 65)} {
		require.ErrorIs(t, CheckName("node", bad), ErrName, bad)
	}
	c := Connection{Job: "j", To: "count", Sender: 1, Receiver: 2, SenderEpoch: 3, ReceiverEpoch: 4}
	seen := map[string]Connection{}
	for i, change := range []func(c *Connection){
		func(*Connection) {}, func(c *Connection) { c.Job = "k" }, func(c *Connection) { c.To = "x" }, func(c *Connection) { c.Input = 1 },
		func(c *Connection) { c.Sender = 2 }, func(c *Connection) { c.Receiver = 1 }, func(c *Connection) { c.SenderEpoch = 4 },
		func(c *Connection) { c.ReceiverEpoch = 3 },
	} {
		d := c
		change(&d)
		require.NoError(t, CheckName("link", d.LinkID()))
		require.NotContains(t, seen, d.LinkID(), i)
		seen[d.LinkID()] = d
	}
	require.Equal(t, "afstream.c.beat.n", Subjects{Cluster: "c"}.Beat("n"))
	require.NoError(t, CheckName("token", strings.Split(Subjects{Cluster: "c"}.Back("j", "any name.", 3), ".")[4]))
}

// Whatever the bytes are, decoding ends with a value that holds together or an error.
func FuzzDecode(f *testing.F) {
	f.Add(NewJob("a", spec(), time.Unix(0, 0)).Encode())
	f.Add((&Beat{Node: "n", Session: "s", Workers: []Status{{Job: "a", Phase: Broken, Error: "x"}}}).Encode())
	f.Add((&Node{Name: "n", Session: "s"}).Encode())
	f.Add((&Leader{Controller: "c", Term: 3}).Encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		if j, err := DecodeJob(value); err == nil {
			if (len(j.View) == 0) != (len(j.Spec.Backups) == 0) {
				t.Fatalf("view %q of %q", j.View, j.Spec.Backups)
			}
			for i := range j.Workers {
				w := &j.Workers[i]
				if j.Worker(w.Operator, w.Index) == nil || uint64(len(w.FailedAt)) != w.Failures || uint64(len(w.FailedIn)) != w.Failures {
					t.Fatalf("worker %s", w.Name())
				}
			}
		}
		if b, err := DecodeBeat(value); err == nil && CheckName("node", b.Node) != nil {
			t.Fatalf("node %q", b.Node)
		}
		_, _ = DecodeNode(value)
		_, _ = DecodeLeader(value)
	})
}
