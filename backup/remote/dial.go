package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Address says where a backup server is and what it takes to get there.
type Address struct {
	URL             string // nats://HOST:PORT or tls://HOST:PORT, several separated by commas
	Credentials     string // file of a user's credentials; empty for none
	CA              string // file of the authorities to trust; empty for those of the system
	Certificate     string // file of the client's certificate, with Key; empty for none
	Key             string
	Cluster, Server string // as in ClientOptions
}

// ErrAddress is wrapped by the error of Check.
var ErrAddress = errors.New("invalid address")

// Check reports, with ErrAddress, what cannot work whatever is there.
func (a *Address) Check() error {
	err := checkNames(a.Cluster, cmp.Or(a.Server, DefaultName))
	for _, text := range strings.Split(a.URL, ",") {
		if u, e := url.Parse(text); e != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls") {
			err = errors.Join(err, fmt.Errorf("url %q: want nats://HOST:PORT or tls://HOST:PORT", redact(text)))
		}
	}
	if (a.Certificate == "") != (a.Key == "") {
		err = errors.Join(err, errors.New("a certificate and its key go together"))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	return nil
}

// Connect connects to NATS, for a client or a server. The connection comes back by itself whenever it breaks. user is
// what NATS calls it.
func (a *Address) Connect(user string, more ...nats.Option) (*nats.Conn, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name(user), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(2 * time.Second),
		// What is written while there is no connection is lost when it comes back, and asked for again: a batch that
		// waits in a buffer could reach the server long after its client has given up.
		nats.ReconnectBufSize(-1),
		// A server whose machine is gone does not say so. Whoever has others to go to shall be there before a lease is over.
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(3),
		// By default a subscription that falls behind is reported to stderr. It makes up for it.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if a.Credentials != "" {
		options = append(options, nats.UserCredentials(a.Credentials))
	}
	if a.CA != "" {
		options = append(options, nats.RootCAs(a.CA))
	}
	if a.Certificate != "" {
		options = append(options, nats.ClientCert(a.Certificate, a.Key))
	}
	nc, err := nats.Connect(a.URL, append(options, more...)...)
	if errors.Is(err, nats.ErrNoServers) {
		return nil, fmt.Errorf("no NATS server at %s: start one, or what has one inside: afstream up, afstream backup",
			redact(a.URL))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", redact(a.URL), err)
	}
	return nc, nil
}

// redact takes passwords out of URLs.
func redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		if u, err := url.Parse(text); err == nil {
			list[i] = u.Redacted()
		} else if _, host, ok := strings.Cut(text, "@"); ok {
			list[i] = host
		}
	}
	return strings.Join(list, ",")
}

// Dial connects to NATS and opens the server at a. Closing the client closes the connection.
func Dial(ctx context.Context, a Address) (*Client, error) {
	nc, err := a.Connect("afstream backup client")
	if err != nil {
		return nil, fmt.Errorf("open backup server: %w", err)
	}
	c, err := Open(ctx, nc, ClientOptions{Cluster: a.Cluster, Server: a.Server})
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.hangUp = nc.Close
	return c, nil
}
