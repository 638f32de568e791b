package remote

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/afstream/afstream/backup"
)

// errForgotten is what a client gets that asks, after the server was started again, why a batch had been refused.
var errForgotten = errors.New("refused before the server was started again; why is not known any more")

// onHello begins a session, which is durable before the client hears of it.
func (s *Server) onHello(c *call, reply string) {
	w := welcome{id: c.id, boot: s.boot, store: s.id}
	rand.Read(w.session[:])
	notes := []backup.Entry{{Key: sessionKey(w.session), Value: appendNote(nil, 0)}}
	s.inStore(func(done func(error)) {
		s.store.ApplyNoted(&backup.Batch{Owner: noteOwner}, notes, done)
	}, 0, func(err error) {
		if err != nil {
			s.o.Logger.Warn("begin session of a backup client", "err", err)
			s.send(reply, appendAnswer(nil, kindFenced, &answer{w.id, resultOf(err)}))
			return
		}
		s.mu.Lock()
		s.sessions[w.session] = &session{id: w.session, reply: reply, heard: time.Now()}
		s.mu.Unlock()
		s.send(reply, appendWelcome(nil, &w))
	})
}

// onBye ends a session.
func (s *Server) onBye(id ident) {
	s.mu.Lock()
	ss := s.sessions[id]
	if ss != nil {
		s.bytes -= len(ss.wire)
		ss.wire = nil
	}
	delete(s.sessions, id)
	s.mu.Unlock()
	if ss == nil {
		return
	}
	s.inStore(func(done func(error)) {
		s.store.ApplyNoted(&backup.Batch{Owner: noteOwner}, forget(id), done)
	}, 0, func(err error) {
		if err != nil {
			s.o.Logger.Warn("end session of a backup client", "err", err)
		}
	})
}

// inStore runs apply, which passes something of so many bytes to the store, unless the server is closed. Close waits for
// its outcome. finish is not called if the store was closed meanwhile: only a server that starts anew can tell then.
func (s *Server) inStore(apply func(done func(error)), bytes int, finish func(error)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.jobs.Add(1)
	s.bytes += bytes
	s.mu.Unlock()
	apply(func(err error) {
		defer s.jobs.Done()
		if bytes > 0 {
			s.mu.Lock()
			s.bytes -= bytes
			s.mu.Unlock()
		}
		if !errors.Is(err, backup.ErrClosed) {
			finish(err)
		}
	})
}

func (s *Server) onApply(a *apply, reply string) {
	s.mu.Lock()
	ss := s.heard(a.session, reply)
	if ss == nil {
		s.mu.Unlock()
		s.send(reply, appendStatus(nil, &status{store: s.id, boot: s.boot, session: a.session, flags: flagUnknown}))
		return
	}
	held := len(ss.wire)
	act := ss.receive(a, s.boot)
	st := status{store: s.id, boot: s.boot, session: ss.id, round: a.round}
	if act == run && s.bytes > s.o.MaxBytes {
		act = ss.hold(a.round)
		st.flags = flagBusy
	}
	var seq uint64
	var wire []byte
	switch act {
	case tell:
		st.outcomes = ss.outcomes(nil, a.seq, a.seq+1)
	case goBack:
		st.flags |= flagGoBack
		st.next = ss.next
	case report:
		st.flags |= flagLost
	case run:
		seq, wire = ss.start()
	}
	s.bytes += len(ss.wire) - held
	s.mu.Unlock()
	if act == run {
		s.run(ss, seq, wire)
	} else if st.flags != 0 || len(st.outcomes) > 0 {
		s.send(reply, appendStatus(nil, &st))
	}
}

// heard finds a session and takes note of where its client listens. s.mu is held.
func (s *Server) heard(id ident, reply string) *session {
	ss := s.sessions[id]
	if ss != nil {
		ss.heard, ss.reply = time.Now(), reply
	}
	return ss
}

// run has a batch applied, with a note that it was in the same atom. The receiving goroutine calls it in the order of the
// session, and the store keeps that order.
func (s *Server) run(ss *session, seq uint64, wire []byte) {
	var b *backup.Batch
	s.inStore(func(done func(error)) {
		var err error
		b, err = decodeBatch(wire)
		applied, known := ss.settled(seq)
		switch {
		case known && applied:
			done(nil)
		case err != nil:
			done(err)
		case known:
			// It was refused, and a later one was not: it must not come after that. All that can still be told is whether
			// it would be refused by a fence, as nothing ever takes a fence back.
			s.store.Apply(&backup.Batch{Owner: b.Owner, Epoch: b.Epoch}, func(err error) {
				if err == nil {
					err = errForgotten
				}
				done(err)
			})
		default:
			s.store.ApplyNoted(b, []backup.Entry{slotNote(ss.id, seq)}, done)
		}
	}, len(wire), func(err error) { s.finish(ss, seq, b, err) })
}

func (s *Server) finish(ss *session, seq uint64, b *backup.Batch, err error) {
	r := resultOf(err)
	s.mu.Lock()
	ss.finish(seq, r)
	if err == nil && b != nil {
		ss.wrote(b.Owner, b.Epoch)
	}
	reply := ss.reply
	s.mu.Unlock()
	st := status{store: s.id, boot: s.boot, session: ss.id, outcomes: []outcome{{seq, r}}}
	s.send(reply, appendStatus(nil, &st))
}

// onProbe answers what has become of everything that the client does not know yet.
func (s *Server) onProbe(p *probe, reply string) {
	st := status{store: s.id, boot: s.boot, session: p.session, round: p.round}
	s.mu.Lock()
	ss := s.heard(p.session, reply)
	if ss == nil {
		st.flags = flagUnknown
	} else {
		held := len(ss.wire)
		ss.catchUp(p.base, p.sure)
		s.bytes += len(ss.wire) - held
		st.next = ss.next
		if ss.next < p.sent || p.boot != s.boot {
			st.flags |= flagGoBack
		}
		if ss.lost {
			st.flags |= flagLost
		}
		st.outcomes = ss.outcomes(nil, p.base, p.sent)
	}
	s.mu.Unlock()
	// Texts of errors may be long: not all outcomes fit one message.
	for len(st.outcomes) > outcomesPerStatus {
		part := st
		part.flags, part.outcomes = 0, st.outcomes[:outcomesPerStatus]
		st.outcomes = st.outcomes[outcomesPerStatus:]
		s.send(reply, appendStatus(nil, &part))
	}
	s.send(reply, appendStatus(nil, &st))
}

// outcomesPerStatus keeps the longest status below minPayload.
const outcomesPerStatus = 32
