package overnats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afstream/afstream/cluster"
)

const (
	// requestTime is how long one request to JetStream may take, whatever its context says: elections of its leaders take
	// about that long.
	requestTime = 5 * time.Second
	// openTime is how long Open waits for a JetStream that does not answer yet, unless its context ends before.
	openTime = 20 * time.Second
	// retryPause is how long to wait before something is tried again; it doubles up to retryMost.
	retryPause = 100 * time.Millisecond
	retryMost  = time.Second
	// busyPause is the first pause before a write that was refused since another was under way; it doubles up to retryPause.
	busyPause = time.Millisecond
)

// Limits of what is kept.
const (
	linesPerJob = 2000
	linesInAll  = 200_000
	linesAge    = 30 * 24 * time.Hour
	markerAge   = time.Hour // of what was deleted
)

// Fabric is the Records, Messages and Logs of a cluster. It rests on a NATS connection that stays its caller's. It has no
// goroutines but those of calls under way.
type Fabric struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects cluster.Subjects
	records  string // name of the bucket
	logs     string // name of the stream
	kv       jetstream.KeyValue
	bucket   jetstream.Stream // that kv rests on
	markers  bool             // the server removes what marks a deletion
}

var (
	_ cluster.Records  = (*Fabric)(nil)
	_ cluster.Messages = (*Fabric)(nil)
	_ cluster.Logs     = (*Fabric)(nil)
)

// Open returns what the named cluster has at NATS, and makes it if it is not there: with so many copies on servers of its own
// (0 is 1). What is there keeps those that it has. Several processes may open at once.
//
// nc should come back by itself (nats.MaxReconnects(-1)) and keep nothing to send later (nats.ReconnectBufSize(-1)): what was
// given up would be done long after.
func Open(ctx context.Context, nc *nats.Conn, name string, replicas int) (*Fabric, error) {
	if err := cluster.CheckName("cluster", name); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	f := &Fabric{nc: nc, js: js, subjects: cluster.Subjects{Cluster: name}, records: "afstream_" + name, logs: "afstream_" + name + "_log"}
	ctx, stop := context.WithTimeout(ctx, openTime)
	defer stop()
	for pause := retryPause; ; pause = min(2*pause, retryMost) {
		now := f.open(ctx, max(replicas, 1))
		if now == nil {
			return f, nil
		}
		if err == nil || ctx.Err() == nil { // that the time is up says less than what happened before
			err = now
		}
		if hopeless(now) || !sleep(ctx, pause) {
			return nil, fmt.Errorf("open cluster %q at NATS server %s: %w", name, nc.ConnectedUrlRedacted(), explain(err))
		}
	}
}

func (f *Fabric) open(ctx context.Context, replicas int) error {
	ctx, stop := context.WithTimeout(ctx, requestTime) // what is lost before there is a leader is never answered
	defer stop()
	account, err := f.js.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("ask what JetStream allows: %w", err)
	}
	markers := account.API.Level >= 1
	f.bucket, err = f.ensure(ctx, jetstream.StreamConfig{
		Name: "KV_" + f.records, Subjects: []string{"$KV." + f.records + ".>"}, Description: "records of an afstream cluster",
		MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, Discard: jetstream.DiscardNew,
		AllowRollup: true, DenyDelete: true, AllowMsgTTL: markers, Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return err
	}
	f.markers = f.bucket.CachedInfo().Config.AllowMsgTTL
	if f.kv, err = f.js.KeyValue(ctx, f.records); err != nil {
		return fmt.Errorf("bucket %s: %w", f.records, err)
	}
	_, err = f.ensure(ctx, jetstream.StreamConfig{
		Name: f.logs, Subjects: []string{f.subjects.Log("*")}, Description: "logs of the jobs of an afstream cluster",
		MaxMsgsPerSubject: linesPerJob, MaxMsgs: linesInAll, MaxBytes: -1, MaxAge: linesAge, MaxConsumers: -1,
		Storage: jetstream.FileStorage, Replicas: replicas,
	})
	return err
}

// ensure returns the stream as it is, or makes it.
func (f *Fabric) ensure(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := f.js.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = f.js.CreateStream(ctx, c)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster, and wished for something else
		s, err = f.js.Stream(ctx, c.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", c.Name, err)
	}
	return s, nil
}

// hopeless says whether waiting will not help.
func hopeless(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case noReplicas, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
			return true
		}
	}
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)
}

// Codes of errors that the client library has no names for.
const (
	noReplicas jetstream.ErrorCode = 10074 // several copies at a server that is alone
	noPeers    jetstream.ErrorCode = 10005 // more copies than servers
)

// explain adds the remedy.
func explain(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && (api.ErrorCode == noReplicas || api.ErrorCode == noPeers):
		return fmt.Errorf("%w: it has fewer servers than there shall be copies: add servers or ask for fewer", err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: start it with JetStream (nats-server -js), and allow this user to use it", err)
	}
	return err
}

// sleep says whether the time has passed, and not the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
