package overnats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afstream/afstream/cluster"
)

// errAway says that a message was not even tried: NATS would keep it and send it when it is old news.
var errAway = errors.New("not connected to NATS")

// Publish sends a message. It fails if there is no connection now.
func (f *Fabric) Publish(subject string, message []byte) error {
	err := errAway
	if f.nc.IsConnected() {
		err = f.nc.Publish(subject, message)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	return nil
}

// Subscribe listens to a subject from about now on. A call of deliver that is under way when stop is called goes on.
func (f *Fabric) Subscribe(subject string, deliver func(subject string, message []byte)) (func(), error) {
	var stopped atomic.Bool
	sub, err := f.nc.Subscribe(subject, func(m *nats.Msg) {
		if !stopped.Load() {
			deliver(m.Subject, m.Data)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", subject, err)
	}
	return func() {
		stopped.Store(true)
		_ = sub.Unsubscribe() // fails only if the connection was closed, which ends it as well
	}, nil
}

// Append adds a line to the log of a job; it is lost if there is no connection, or no stream, now.
func (f *Fabric) Append(job string, l cluster.Line) error {
	if err := cluster.CheckName("job", job); err != nil {
		return err
	}
	return f.Publish(f.subjects.Log(job), l.Encode())
}

// Forget deletes the log of a job.
func (f *Fabric) Forget(ctx context.Context, job string) error {
	if err := cluster.CheckName("job", job); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, requestTime)
	defer stop()
	s, err := f.js.Stream(ctx, f.logs)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(f.subjects.Log(job)))
	}
	if err != nil {
		return fmt.Errorf("delete the log of job %s: %w", job, err)
	}
	return nil
}

// Read reads the log of a job. Lines that cannot be read are left out.
func (f *Fabric) Read(ctx context.Context, job string, follow bool, each func(cluster.Line) error) error {
	if err := cluster.CheckName("job", job); err != nil {
		return err
	}
	var own error
	t := tail{f: f, stream: f.logs, subject: f.subjects.Log(job), follow: follow, synced: func() {}}
	t.each = func(m *nats.Msg, _ uint64) error {
		l, err := cluster.DecodeLine(m.Data)
		if err != nil {
			return nil
		}
		own = each(l)
		return own
	}
	if err := t.run(ctx); own == nil && err != nil {
		return fmt.Errorf("read the log of job %s: %w", job, err)
	}
	return own
}
