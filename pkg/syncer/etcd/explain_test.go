package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a person is told of each kind of trouble, and how long it is until the next attempt.
func TestErrorsInOneLine(t *testing.T) {
	o := Options{Endpoints: []string{"https://a:2379", "https://b:2379"}, User: "margay", PasswordFile: "/p"}
	connection := func(why string) error {
		return status.Error(codes.Unavailable, `connection error: desc = "transport: `+why+`"`)
	}
	for _, tt := range []struct {
		err   error
		pause time.Duration
		want  string
	}{
		{connection("Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused"), longPause,
			"etcd at https://a:2379, https://b:2379 cannot be reached: dial tcp 10.0.0.1:2379: connect: connection refused"},
		{connection("authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"), untrustedPause,
			"the certificate of etcd at https://a:2379, https://b:2379 cannot be trusted: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{connection("authentication handshake failed: remote error: tls: certificate required"), untrustedPause,
			"etcd at https://a:2379, https://b:2379 does not accept the client certificate (--etcd-cert-file): remote error: tls: certificate required"},
		{known(rpctypes.ErrGRPCAuthFailed), untrustedPause, `etcd does not accept the user "margay" with the password in /p`},
		{known(rpctypes.ErrGRPCPermissionDenied), untrustedPause, `etcd does not let the user "margay" read keys that begin with /calico/resources/v3/projectcalico.org/`},
		{known(rpctypes.Error(errors.New("etcdserver: permission denied"))), untrustedPause, `etcd does not let the user "margay" read keys that begin with /calico/resources/v3/projectcalico.org/`},
		{known(rpctypes.ErrGRPCUserEmpty), untrustedPause, "etcd wants a user: see --etcd-user and --etcd-password-file, or a client certificate"},
		{known(rpctypes.ErrGRPCNoLeader), longPause, "etcd has no leader: too few of its servers are there"},
		{known(rpctypes.ErrGRPCCompacted), longPause, "what happened meanwhile has been compacted"},
		{fmt.Errorf("list: %w", context.DeadlineExceeded), longPause, "etcd at https://a:2379, https://b:2379 does not answer in time"},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), longPause,
			"etcd at https://a:2379, https://b:2379 cannot be reached: error reading server preface: EOF"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), longPause, "etcd at https://a:2379, https://b:2379 cannot be reached: error reading from server: EOF"},
		{known(rpctypes.ErrGRPCRequestTooManyRequests), longPause, "etcdserver: too many requests"},
		{errors.New("read the password: open /p: no such file\n"), longPause, "read the password: open /p: no such file "},
	} {
		if got := o.explain(tt.err); got != tt.want {
			t.Errorf("%v:\n%s\nwant\n%s", tt.err, got, tt.want)
		}
		if got := lastPause(tt.err); got != tt.pause {
			t.Errorf("%v: %v until the next attempt, want %v", tt.err, got, tt.pause)
		}
	}
}
