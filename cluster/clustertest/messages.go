package clustertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/afstream/afstream/transport/link"
)

// maxPayload is what a message may have.
const maxPayload = 1 << 20

// Publish is of cluster.Messages.
func (p *Process) Publish(subject string, message []byte) error {
	p.n.mu.Lock()
	away := p.n.cut[p.name] && !p.still() && p.chance(0.5) // whether it is noticed is a matter of time
	p.n.mu.Unlock()
	if away {
		return fmt.Errorf("publish %s: %w", subject, ErrUnreached)
	}
	message = bytes.Clone(message)
	p.send(func() { p.publish(subject, message) })
	return nil
}

// publish has copies of a message arrive wherever somebody listens. n.mu is held.
func (p *Process) publish(subject string, message []byte) {
	n := p.n
	for _, s := range n.subs {
		if !s.matches(subject) || !n.reaches(p.name, s.p.name) {
			continue
		}
		copies := 1
		if p.chance(n.faults.Double) {
			copies = 2
		}
		for range copies {
			if !p.chance(n.faults.Lose) {
				n.after(p.upTo(n.faults.Delay), func() { s.arrive(p, subject, bytes.Clone(message)) })
			}
		}
	}
}

// Subscribe is of cluster.Messages.
func (p *Process) Subscribe(subject string, deliver func(subject string, message []byte)) (func(), error) {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &subscription{p: p, tokens: strings.Split(subject, "."), deliver: deliver, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	select {
	case <-n.closed:
		return nil, fmt.Errorf("subscribe %s: %w", subject, ErrUnreached)
	default:
	}
	n.subs = append(n.subs, s)
	n.running.Go(s.run) // ends with stop, Kill or the net
	return s.stop, nil
}

type message struct {
	subject string
	body    []byte
}

// subscription is one subject that a process listens to, with a goroutine that delivers.
type subscription struct {
	p       *Process
	tokens  []string
	deliver func(subject string, message []byte)
	wake    chan struct{}
	stopped chan struct{} // closed by stop

	queue []message // guarded by n.mu
}

func (s *subscription) matches(subject string) bool {
	tokens := strings.Split(subject, ".")
	return len(tokens) == len(s.tokens) && !slices.ContainsFunc(s.tokens, func(t string) bool {
		own := tokens[0]
		tokens = tokens[1:]
		return t != "*" && t != own
	})
}

// arrive is called with n.mu held.
func (s *subscription) arrive(from *Process, subject string, body []byte) {
	switch {
	case !s.p.n.reaches(from.name, s.p.name), s.p.isDead():
	case s.p.still():
		s.p.inbox = append(s.p.inbox, func() { s.push(message{subject, body}) })
	default:
		s.push(message{subject, body})
	}
}

func (s *subscription) push(m message) {
	s.queue = append(s.queue, m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) run() {
	for {
		select {
		case <-s.wake:
		case <-s.stopped:
			return
		case <-s.p.dead:
			return
		case <-s.p.n.closed:
			return
		}
		for m, ok := s.pop(); ok && s.p.move() == nil && !s.isStopped(); m, ok = s.pop() {
			s.deliver(m.subject, m.body)
		}
	}
}

func (s *subscription) pop() (message, bool) {
	s.p.n.mu.Lock()
	defer s.p.n.mu.Unlock()
	if len(s.queue) == 0 {
		return message{}, false
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	return m, true
}

func (s *subscription) isStopped() bool {
	select {
	case <-s.stopped:
		return true
	case <-s.p.n.closed:
		return true
	default:
		return false
	}
}

// stop may be called twice, and by deliver.
func (s *subscription) stop() {
	n := s.p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.subs, s); i >= 0 {
		n.subs = slices.Delete(n.subs, i, i+1)
		close(s.stopped)
	}
}

// Carrier carries the links of the process's link.Bus, with the same faults.
func (p *Process) Carrier() link.Carrier { return carrier{p} }

type carrier struct{ p *Process }

func (c carrier) Publish(subject string, msg []byte) error { return c.p.Publish(subject, msg) }

func (c carrier) Subscribe(subject string, _, _ int, deliver func(msg []byte)) (link.Subscription, error) {
	stop, err := c.p.Subscribe(subject, func(_ string, msg []byte) { deliver(msg) })
	return listening(stop), err
}

func (c carrier) MaxPayload() int { return maxPayload }

// listening is the function that stops it.
type listening func()

func (l listening) Dropped() uint64 { return 0 }
func (l listening) Stop()           { l() }
