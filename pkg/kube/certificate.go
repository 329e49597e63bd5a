package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// httpClient makes the client that all others share. A client certificate that is written in the kubeconfig is read again when the server
// refuses it: certificates expire, and nothing restarts the agent when a new one is written there. Of one with files of its own client-go
// sees within minutes that it changed; of one in the kubeconfig it never does.
func httpClient(config *rest.Config, kubeconfig, user string) (*http.Client, error) {
	if len(config.CertData) == 0 || config.CertFile != "" || kubeconfig == "" {
		return rest.HTTPClientFor(config)
	}
	first, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	c := &certificate{present: &first, conns: connrotation.NewDialer(connrotation.DialFunc(config.Dial)), read: func() (*tls.Certificate, error) {
		return certificateOf(kubeconfig, user)
	}}
	of, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	of.TLS.CertData, of.TLS.KeyData = nil, nil // which would come first
	of.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: func() (*tls.Certificate, error) { return c.shown(), nil }}
	of.DialHolder = &transport.DialHolder{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.conns.DialContext(ctx, network, address)
	}}
	of.Wrap(func(next http.RoundTripper) http.RoundTripper { return &renewedCertificate{next: next, certificate: c} })
	way, err := transport.New(of)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: way, Timeout: config.Timeout}, nil
}

// certificateOf reads the certificate of a user from a kubeconfig file.
func certificateOf(kubeconfig, user string) (*tls.Certificate, error) {
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	of := file.AuthInfos[user]
	if of == nil {
		return nil, fmt.Errorf("kubeconfig %s: there is no user %q", kubeconfig, user)
	}
	pair, err := tls.X509KeyPair(of.ClientCertificateData, of.ClientKeyData)
	return &pair, err
}

// certificate is what a client shows in each handshake. Safe for concurrent use.
type certificate struct {
	read  func() (*tls.Certificate, error) // reads the present one
	conns *connrotation.Dialer

	mu      sync.Mutex // guards present
	present *tls.Certificate
}

// shown returns the certificate for the next handshake.
func (c *certificate) shown() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.present
}

// instead reports whether there is another certificate than the one that was refused, and closes the connections that showed that one.
// A failure to read it counts as no other: the error to report is the refusal, which the caller has.
func (c *certificate) instead(refused *tls.Certificate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.present != refused {
		return true // another request has found it
	}
	now, err := c.read()
	if err != nil || slices.EqualFunc(now.Certificate, refused.Certificate, slices.Equal) {
		return false
	}
	c.present = now
	c.conns.CloseAll()
	return true
}

// renewedCertificate sends a request again if there was no answer, or one that the certificate is refused, and there is another one. Most
// servers refuse it in an answer. One that does so in the handshake looks like a connection that breaks.
type renewedCertificate struct {
	next        http.RoundTripper
	certificate *certificate
}

// RoundTrip implements http.RoundTripper.
func (r *renewedCertificate) RoundTrip(req *http.Request) (*http.Response, error) {
	shown := r.certificate.shown()
	answer, err := r.next.RoundTrip(req)
	if err == nil && answer.StatusCode != http.StatusUnauthorized || req.Context().Err() != nil || req.Body != nil && req.GetBody == nil {
		return answer, err
	}
	if !r.certificate.instead(shown) {
		return answer, err
	}
	again := req.Clone(req.Context())
	if req.Body != nil {
		body, bodyErr := req.GetBody()
		if bodyErr != nil {
			return answer, err
		}
		again.Body = body
	}
	if err == nil {
		answer.Body.Close() // its content is known: the certificate was refused
	}
	return r.next.RoundTrip(again)
}

// WrappedRoundTripper lets client-go find the transport, to close its connections.
func (r *renewedCertificate) WrappedRoundTripper() http.RoundTripper { return r.next }
