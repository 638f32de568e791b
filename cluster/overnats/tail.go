package overnats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pulse is how often a server says that there is nothing new.
	pulse = 500 * time.Millisecond
	// silence is how long nothing may come before it counts as gone.
	silence = 3 * pulse
	// patience is how long a tail tries to go on.
	patience = 10 * time.Second
	// forgotten is when a server drops a consumer that nobody listens to.
	forgotten = 30 * time.Second
)

var (
	// errEnd ends a tail that does not follow.
	errEnd = errors.New("that was all")
	// errReplaced ends a tail that would have to go on in another stream.
	errReplaced = errors.New("it was made anew, or an older copy of it put in place")
	// errLost is why a session ends that has missed something.
	errLost = errors.New("NATS has fallen silent, or lost messages")
	// errOwn wraps an error of each.
	errOwn = errors.New("caller")
)

// tail calls each for the messages of a stream, in their order and once each, from the first one on. It lives through what its
// consumers do not. All is done on the caller's goroutine.
type tail struct {
	f       *Fabric
	stream  string
	subject string
	follow  bool                                   // go on after synced
	each    func(m *nats.Msg, number uint64) error // an error ends the tail
	synced  func()                                 // called once, when all that there was has been told

	told    uint64    // number of the last message
	created time.Time // of the stream
	quiet   bool      // synced was called
	lived   time.Time // when the server last said something
}

// run returns nil if ctx ends, or if all was told and no more is wanted.
func (t *tail) run(ctx context.Context) error {
	t.lived = time.Now()
	for pause := retryPause; ; pause = min(2*pause, retryMost) {
		before := t.lived
		err := t.session(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, errEnd):
			return nil
		case errors.Is(err, errReplaced), errors.Is(err, errOwn), errors.Is(err, nats.ErrConnectionClosed), time.Since(t.lived) > patience:
			return err
		}
		if t.lived != before {
			pause = retryPause
		}
		sleep(ctx, pause)
	}
}

// session is the life of one consumer.
func (t *tail) session(ctx context.Context) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	inbox := t.f.nc.NewInbox()
	sub, err := t.f.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() // fails only if the connection was closed, which ends it as well
	c := jetstream.ConsumerConfig{
		DeliverSubject: inbox, FilterSubject: t.subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.told + 1,
		AckPolicy: jetstream.AckNonePolicy, IdleHeartbeat: pulse, FlowControl: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: forgotten,
	}
	made, err := request(ctx, func(ctx context.Context) (jetstream.PushConsumer, error) {
		return t.f.js.CreatePushConsumer(ctx, t.stream, c)
	})
	if err != nil {
		return err
	}
	info := made.CachedInfo()
	defer t.f.nc.Publish("$JS.API.CONSUMER.DELETE."+t.stream+"."+info.Name, nil) // the server does so itself after a while
	t.lived = time.Now()
	if info.NumPending == 0 {
		if err := t.sync(); err != nil {
			return err
		}
	}
	return t.listen(ctx, sub)
}

// check sees to it that the stream is the one that the numbers told are of.
func (t *tail) check(ctx context.Context) error {
	s, err := request(ctx, func(ctx context.Context) (jetstream.Stream, error) { return t.f.js.Stream(ctx, t.stream) })
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if t.created.IsZero() {
		t.created = info.Created
	}
	if !info.Created.Equal(t.created) || info.State.LastSeq < t.told {
		return fmt.Errorf("stream %s: %w", t.stream, errReplaced)
	}
	return nil
}

// request bounds the time of one.
func request[T any](ctx context.Context, do func(ctx context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, silence)
	defer stop()
	return do(ctx)
}

// listen takes what a consumer sends.
func (t *tail) listen(ctx context.Context, sub *nats.Subscription) error {
	for last := uint64(0); ; { // number within the consumer
		m, err := request(ctx, sub.NextMsgWithContext)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrSlowConsumer):
			return errLost
		case err != nil:
			return err
		}
		t.lived = time.Now()
		if m.Header.Get("Status") != "" {
			if err := t.status(m, last); err != nil {
				return err
			}
			continue
		}
		md, err := m.Metadata()
		if err != nil {
			return err
		}
		if md.Sequence.Consumer != last+1 {
			return errLost
		}
		last = md.Sequence.Consumer
		t.told = md.Sequence.Stream
		if err := t.each(m, t.told); err != nil {
			return fmt.Errorf("%w: %w", errOwn, err)
		}
		if md.NumPending == 0 {
			if err := t.sync(); err != nil {
				return err
			}
		}
	}
}

// status takes what a server says of a consumer that has sent messages up to last, as far as it has arrived.
func (t *tail) status(m *nats.Msg, last uint64) error {
	if m.Header.Get("Status") != "100" {
		return fmt.Errorf("consumer of stream %s: %s", t.stream, m.Header.Get("Description"))
	}
	if m.Reply != "" { // it waits until we have come so far
		return m.Respond(nil)
	}
	if stalled := m.Header.Get("Nats-Consumer-Stalled"); stalled != "" {
		return t.f.nc.Publish(stalled, nil)
	}
	if n, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err != nil || n != last {
		return errLost
	}
	return t.sync() // there is nothing more, whatever there was at the start
}

// sync is called when all was told.
func (t *tail) sync() error {
	if !t.quiet {
		t.quiet = true
		t.synced()
	}
	if !t.follow {
		return errEnd
	}
	return nil
}
