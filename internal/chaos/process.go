//go:build unix

package chaos

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to do what a test waits for.
const patience = 60 * time.Second

// Command is what a process runs.
type Command struct {
	Name string // for messages; the path if it is empty
	Path string
	Args []string
	Env  []string   // beside what the test has
	In   *Namespace // nil for that of the test
}

// Process is one that a test has started, and maybe started again. Its methods fail the test if they cannot do what they say. They are for one
// goroutine.
type Process struct {
	t   testing.TB
	c   Command
	cmd *exec.Cmd
	out output
	end chan struct{} // closed when it has ended
}

// Start starts a process that ends with the test.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	if c.Name == "" {
		c.Name = c.Path
	}
	p := &Process{t: t, c: c}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said last:\n%s", c.Name, p.out.tail())
		}
	})
	p.Start()
	return p
}

// Start starts it again, with the same arguments.
func (p *Process) Start() {
	p.t.Helper()
	if p.cmd != nil && !p.Ended() {
		p.t.Fatalf("%s runs already", p.c.Name)
	}
	words := append(p.c.In.prefix(), p.c.Path)
	words = append(words, p.c.Args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(cmd.Environ(), p.c.Env...)
	p.out.begin()
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.c.Name, err)
	}
	p.cmd, p.end = cmd, make(chan struct{})
	end := p.end
	go func() { // ends with the process
		defer close(end)
		_ = cmd.Wait() // its state tells
	}()
}

// Await waits until it has said text since it was started.
func (p *Process) Await(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		// In this order: what it said last counts although it has ended.
		ended := p.Ended()
		said, more := p.out.since()
		if strings.Contains(said, text) {
			return
		}
		if ended {
			p.t.Fatalf("%s has ended (%v) without %q:\n%s", p.c.Name, p.cmd.ProcessState, text, said)
		}
		select {
		case <-more:
		case <-p.end:
		case <-deadline:
			p.t.Fatalf("%s does not say %q:\n%s", p.c.Name, text, said)
		}
	}
}

// Output is what it has said since it was started.
func (p *Process) Output() string {
	said, _ := p.out.since()
	return said
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended says whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.end:
		return true
	default:
		return false
	}
}

// Kill kills it, without notice, and what it has started.
func (p *Process) Kill() {
	p.t.Helper()
	if p.Ended() {
		p.t.Fatalf("%s has ended already (%v):\n%s", p.c.Name, p.cmd.ProcessState, p.Output())
	}
	p.kill()
}

func (p *Process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.send(syscall.SIGKILL) // it may have ended
	<-p.end
}

// Stop has it stand still.
func (p *Process) Stop() { p.signal(syscall.SIGSTOP) }

// Continue ends Stop.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

// Interrupt asks it to end and returns its exit code.
func (p *Process) Interrupt() int {
	p.t.Helper()
	p.signal(syscall.SIGINT)
	return p.Wait()
}

// Wait waits for its end and returns its exit code, -1 if a signal ended it.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.end:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end:\n%s", p.c.Name, p.Output())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.send(s); err != nil {
		p.t.Fatalf("%v to %s: %v", s, p.c.Name, err)
	}
}

// send sends a signal to all of its group.
func (p *Process) send(s syscall.Signal) error {
	if p.Ended() {
		return errors.New("it has ended")
	}
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

// output keeps what a process says.
type output struct {
	mu    sync.Mutex
	all   bytes.Buffer
	start int           // of what it said since it was started
	more  chan struct{} // closed, and made anew, with each word
}

func (o *output) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start = o.all.Len()
	if o.more == nil {
		o.more = make(chan struct{})
	}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.all.Write(b)
}

func (o *output) since() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.all.Bytes()[o.start:]), o.more
}

// tail is the end of all that it said.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.all.Bytes()
	return string(b[max(0, len(b)-4000):])
}
