package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options say how to reach etcd. The files are read for every connection, so that a replaced file is used from the next
// connection on.
type Options struct {
	Endpoints    []string // URLs, all http or all https
	CAFile       string   // who signs the servers' certificates; empty: whom the machine trusts
	CertFile     string   // of the client; empty: it has none
	KeyFile      string
	User         string // empty: none
	PasswordFile string
	DialTimeout  time.Duration // for a connection to be made and the user to be known
	KeepAlive    time.Duration // between questions whether a silent server is there
}

const (
	// maxMessage bounds one message from the server.
	maxMessage = 64 << 20
	// keepAliveTimeout is how long a server may take to answer that it is there.
	keepAliveTimeout = 5 * time.Second
)

// client is a connection to the servers of one cluster.
type client struct{ *clientv3.Client }

// open connects. Nothing but the files has been read, and the user has been asked for, when it returns.
func (o Options) open(ctx context.Context) (connection, error) {
	c := clientv3.Config{
		Context: ctx, Endpoints: o.Endpoints, Username: o.User, Logger: zap.NewNop(),
		DialTimeout: o.DialTimeout, DialKeepAliveTime: o.KeepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallRecvMsgSize: maxMessage, MaxUnaryRetries: 2, DialOptions: o.dialing(),
	}
	if o.User != "" {
		text, err := os.ReadFile(o.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		if c.Password = strings.TrimRight(string(text), "\r\n"); c.Password == "" {
			return nil, fmt.Errorf("read the password: %s is empty", o.PasswordFile)
		}
	}
	var err error
	if len(o.Endpoints) > 0 && strings.HasPrefix(o.Endpoints[0], "https:") {
		if c.TLS, err = o.tls(); err != nil {
			return nil, err
		}
	}
	made, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	return client{made}, nil
}

// dialing makes calls fail as soon as it is known that no server can be reached. By default clientv3 makes them wait, and
// gRPC connects again after up to two minutes: the outage would not be reported, and its end would be noticed late.
func (o Options) dialing() []grpc.DialOption {
	pauses := backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longPause}
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: o.DialTimeout}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(ctx, method, request, reply, c, append(options, grpc.WaitForReady(false))...)
		}),
	}
}

func (o Options) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authority: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the certificate authority: %s has no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (c client) close() { c.Close() }

// end is the key after all that begin with root.
var end = clientv3.GetPrefixRangeEnd(root)

func (c client) list(ctx context.Context, from string, limit int64, revision int64, keysOnly bool) (page, error) {
	options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(revision)}
	if keysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	r, err := c.Get(ctx, from, options...)
	if err != nil {
		return page{}, known(err)
	}
	p := page{more: r.More, at: position{r.Header.ClusterId, r.Header.Revision}}
	for _, kv := range r.Kvs {
		e := entryOf(kv)
		e.tooLarge = keysOnly
		p.entries = append(p.entries, e)
	}
	return p, nil
}

func entryOf(kv *mvccpb.KeyValue) entry {
	return entry{key: string(kv.Key), value: kv.Value, created: kv.CreateRevision, modified: kv.ModRevision}
}

// watch asks for events by the call itself rather than by clientv3's Watcher, for two reasons. That one goes on over another
// connection without an error, perhaps in another history; and it queues events without bound, where the call has flow
// control.
func (c client) watch(ctx context.Context, from int64) (stream, error) {
	w, err := etcdserverpb.NewWatchClient(c.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return nil, known(err)
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(root), RangeEnd: []byte(end), StartRevision: from, ProgressNotify: true, Fragment: true}
	request := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := w.Send(request); err != nil {
		_, err = w.Recv() // says why
		return nil, known(err)
	}
	return &call{Watch_WatchClient: w}, nil
}

// call is a watch of the client. A server that is asked for fragments makes several messages of an answer that is larger than a request may
// be. Otherwise it sends what up to 1,000 revisions have changed in one, and tenants decide how large that is.
type call struct {
	etcdserverpb.Watch_WatchClient
	begun []event // of a revision of which the next fragment may have more
}

func (c *call) next() (answer, error) {
	r, err := c.Recv()
	if err != nil {
		return answer{}, known(err)
	}
	switch {
	case r.CompactRevision != 0:
		return answer{}, errCompacted
	case r.Canceled:
		return answer{}, known(rpctypes.Error(errors.New(r.CancelReason)))
	}
	a := answer{at: position{r.Header.ClusterId, r.Header.Revision}, events: c.begun}
	c.begun = nil
	for _, e := range r.Events {
		a.events = append(a.events, event{entryOf(e.Kv), e.Type == mvccpb.DELETE})
	}
	if n := len(a.events); r.Fragment && n > 0 {
		last := slices.IndexFunc(a.events, func(e event) bool { return e.modified == a.events[n-1].modified })
		a.events, c.begun = a.events[:last], slices.Clone(a.events[last:])
	}
	return a, nil
}

// known names errors that the source does something about.
func known(err error) error {
	err = rpctypes.Error(err)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return errCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return errHistory
	case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		return errTooLarge
	}
	return err
}
