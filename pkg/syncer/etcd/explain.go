package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// explain is what an error means, in one line without the words of the client library.
func (o Options) explain(err error) string {
	at := strings.Join(o.Endpoints, ", ")
	text := plain(err)
	switch {
	case errors.Is(err, errCompacted), errors.Is(err, errHistory), errors.Is(err, errTooLarge):
		return err.Error()
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserNotFound):
		return fmt.Sprintf("etcd does not accept the user %q with the password in %s", o.User, o.PasswordFile)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "etcd wants a user: see --etcd-user and --etcd-password-file, or a client certificate"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf("etcd does not let the user %q read keys that begin with %s", o.User, root)
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "etcd has no leader: too few of its servers are there"
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"), strings.Contains(text, "unknown certificate authority"):
		return fmt.Sprintf("etcd at %s does not accept the client certificate (--etcd-cert-file): %s", at, text)
	case isUntrusted(err):
		return fmt.Sprintf("the certificate of etcd at %s cannot be trusted: %s", at, text)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return fmt.Sprintf("etcd at %s does not answer in time", at)
	case status.Code(err) == codes.Unavailable:
		return fmt.Sprintf("etcd at %s cannot be reached: %s", at, text)
	}
	return text
}

// plain is the innermost text of an error: gRPC puts words around what the network says.
func plain(err error) string {
	text := err.Error()
	var client rpctypes.EtcdError
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		text = s.Message()
	} else if errors.As(err, &client) {
		text = client.Error()
	}
	for _, words := range []string{`connection error: desc = "`, `desc = "transport: `, "transport: ", "Error while dialing: ", "authentication handshake failed: "} {
		if i := strings.LastIndex(text, words); i >= 0 {
			text = text[i+len(words):]
		}
	}
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(strings.Trim(text, `"`))
}

// isUntrusted reports whether TLS has failed.
func isUntrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || strings.Contains(err.Error(), "authentication handshake failed")
}

// expected reports whether an error is no fault of the datastore that its users could mend: it has to be followed again.
func expected(err error) bool {
	return errors.Is(err, errCompacted) || errors.Is(err, errHistory) || errors.Is(err, errTooLarge) || errors.Is(err, errSilent)
}

// lastPause is the longest time from one attempt to the next after an error.
func lastPause(err error) time.Duration {
	switch {
	case isUntrusted(err), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrUserNotFound), errors.Is(err, rpctypes.ErrPermissionDenied):
		return untrustedPause
	}
	return longPause
}
