package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Identity says which server is asked and as whom, for messages.
type Identity struct {
	Server      string // its URL
	From        string // where that is written: "kubeconfig /etc/margay/kubeconfig, context \"node\""
	User        string // the user's name there, if it has one
	Credentials string // what proves it: "token file /var/run/secrets/kubernetes.io/serviceaccount/token"
}

// Unreachable reports whether err says that no API server answered: nothing did, or not with HTTP, or only a gateway
// in between that has no server either. An end of the caller's own context is no such error.
func Unreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Untrusted reports whether err says that one side refuses the other's certificate, which only a human can mend.
func Untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || alerted(err) != nil
}

// alerted returns the alert by which the server has ended the TLS connection; nil: it has not.
func alerted(err error) error {
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return alert
	}
	// Over TCP the type of alerts has no name outside of its package. Only they have this operation.
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// Explain returns one line that says what an error of a request to an API server means, and what to do about it. The
// empty string for nil. Errors it does not know are given as they are, on one line.
func Explain(err error, as Identity) string {
	if err == nil {
		return ""
	}
	for _, explain := range []func(error, Identity) string{explainStatus, explainTrust, explainNetwork} {
		if text := explain(err, as); text != "" {
			return oneLine(text)
		}
	}
	return oneLine(err.Error())
}

// tierRefused matches what Calico's API server says to those who have no right to the policies of any tier.
var tierRefused = regexp.MustCompile(`^([a-z]+)\.([a-z.]+) is forbidden: Operation on Calico tiered policy is forbidden`)

// TierRight reports whether err is the answer of Calico's API server to a reader who has the right to the resource and to no tier's part
// of it, and which resource stands for that right: "tier.networkpolicies" of its group.
func TierRight(err error) (right schema.GroupResource, refused bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusForbidden {
		return schema.GroupResource{}, false
	}
	m := tierRefused.FindStringSubmatch(status.Status().Message)
	if m == nil {
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: m[2], Resource: "tier." + m[1]}, true
}

// refused matches what an API server says of a request that its authorizer did not allow.
var refused = regexp.MustCompile(`User "([^"]*)" cannot (\S+) (?:resource|path) "([^"]*)"(?: in API group "([^"]*)")?( at the cluster scope| in the namespace "[^"]*")?`)

// explainStatus explains an answer of the server.
func explainStatus(err error, as Identity) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	s := status.Status()
	switch s.Code {
	case http.StatusUnauthorized:
		what := as.Credentials + " is expired or invalid"
		if as.Credentials == noCredentials {
			what = "we send no credentials"
		}
		return fmt.Sprintf("the API server at %s rejects our credentials (401): %s%s", as.Server, what, origin(as))
	case http.StatusForbidden:
		if resource, ok := TierRight(err); ok {
			return fmt.Sprintf("forbidden by Calico's API server: it lists policies of tiers for which the user has the right to get, list and watch "+
				"%s in API group %s, and there is none; grant that without resourceNames, with a ClusterRole%s", resource.Resource, resource.Group, origin(as))
		}
		m := refused.FindStringSubmatch(s.Message)
		if m == nil {
			return fmt.Sprintf("forbidden by the API server: %s%s", s.Message, origin(as))
		}
		resource := m[3]
		if m[4] != "" {
			resource += "." + m[4]
		}
		return fmt.Sprintf("forbidden: user %q may not %s %s%s; grant that to it with a ClusterRole", m[1], m[2], resource, m[5])
	case http.StatusTooManyRequests:
		return "the API server is busy and asks to come back later (429): " + s.Message
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Sprintf("the API server at %s is not available (%d): %s", as.Server, s.Code, s.Message)
	}
	return fmt.Sprintf("the API server answers %d: %s", s.Code, s.Message)
}

// explainTrust explains certificates that are refused.
func explainTrust(err error, as Identity) string {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	alert := alerted(err)
	what := ""
	switch {
	case errors.As(err, &authority):
		what = "is signed by an authority that is not trusted; is certificate-authority-data of the right cluster"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of the API server at %s has expired or is not valid yet: %s; is the clock right?%s",
			as.Server, invalid.Detail, origin(as))
	case errors.As(err, &host):
		return fmt.Sprintf("the certificate of the API server at %s is for another name: %s%s", as.Server, host.Error(), origin(as))
	case alert != nil:
		return fmt.Sprintf("the API server at %s rejects our TLS handshake: %s; we send %s%s", as.Server, alert.Error(), as.Credentials, origin(as))
	case Untrusted(err):
		what = "cannot be verified: " + cause(err).Error() + "; is it the right server"
	default:
		return ""
	}
	return fmt.Sprintf("the certificate of the API server at %s %s?%s", as.Server, what, origin(as))
}

// explainNetwork explains why there was no answer.
func explainNetwork(err error, as Identity) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Sprintf("the server at %s does not speak TLS; is it the API server?%s", as.Server, origin(as))
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("host %q of the API server at %s does not exist%s", dns.Name, as.Server, origin(as))
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %q of the API server cannot be resolved: %s%s", dns.Name, dns.Err, origin(as))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("the API server at %s refuses connections: is it running, and is the address right?%s", as.Server, origin(as))
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("no route to the API server at %s%s", as.Server, origin(as))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the API server at %s does not answer in time%s", as.Server, origin(as))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "http2: client connection lost"), strings.Contains(err.Error(), "http2: server sent GOAWAY"):
		return fmt.Sprintf("the connection to the API server at %s broke%s", as.Server, origin(as))
	}
	return ""
}

// origin is where address and credentials were found, in parentheses.
func origin(as Identity) string {
	switch {
	case as.From == "":
		return ""
	case as.User == "":
		return " (" + as.From + ")"
	}
	return fmt.Sprintf(" (%s, user %q)", as.From, as.User)
}

// oneLine puts everything on one line, of a length that a terminal can show.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return ' '
		}
		return c
	}, s)), " ")
	const most = 600
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
