package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// userOf is a user of a kubeconfig with a certificate of this number in it.
func userOf(t *testing.T, number int64) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data := func(kind string, bytes []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return fmt.Sprintf("{client-certificate-data: %q, client-key-data: %q}", data("CERTIFICATE", der), data("PRIVATE KEY", private))
}

// certificateServer is a server that accepts the client certificate of one number.
type certificateServer struct {
	*httptest.Server
	accepted int64
	bodies   []string
}

// serveCertificates starts one, which refuses others with 401, as an API server does, or in the handshake. A request to /watch gets its
// answer and no end of it.
func serveCertificates(t *testing.T, inHandshake bool) *certificateServer {
	t.Helper()
	s := &certificateServer{}
	refused := func(c *x509.Certificate) bool { return c.SerialNumber.Int64() != s.accepted }
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, string(body))
		if refused(r.TLS.PeerCertificates[0]) {
			w.WriteHeader(http.StatusUnauthorized)
		} else if r.URL.Path == "/watch" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	s.EnableHTTP2 = !inHandshake // with it, the client may learn of a broken connection only
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	if inHandshake {
		s.TLS.VerifyConnection = func(state tls.ConnectionState) error {
			if refused(state.PeerCertificates[0]) {
				return fmt.Errorf("another certificate than %d", s.accepted)
			}
			return nil
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestARefusedCertificateIsReadAgainFromTheKubeconfig(t *testing.T) {
	server := serveCertificates(t, false)
	server.accepted = 1
	old := userOf(t, 1)
	path := write(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), old)
	c, err := Open(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.HTTP.CloseIdleConnections()
	if want := "client certificate in " + path; c.Identity.Credentials != want {
		t.Errorf("credentials %q, want %q", c.Identity.Credentials, want)
	}
	client, err := c.REST(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.Get().AbsPath("/watch").Stream(t.Context()) // keeps the connection from being idle
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	server.accepted = 2
	if err := c.Ready(t.Context()); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("an expired certificate: %v", err)
	}
	replace(t, path, old, userOf(t, 2))
	server.bodies = nil
	if err := client.Post().AbsPath("/x").Body([]byte("hello")).Do(t.Context()).Error(); err != nil {
		t.Fatalf("the new certificate: %v", err)
	}
	if got := strings.Join(server.bodies, " "); got != "hello hello" {
		t.Errorf("bodies %q", got)
	}
	if _, err := io.ReadAll(watch); err == nil {
		t.Error("a connection with the certificate that has expired is still open")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("without the file: %v", err)
	}
}

func TestACertificateThatIsRefusedInTheHandshakeIsReadAgain(t *testing.T) {
	server := serveCertificates(t, true)
	server.accepted = 2
	old := userOf(t, 1)
	path := write(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), old)
	c, err := Open(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.HTTP.CloseIdleConnections()
	err = c.Ready(t.Context())
	if says := c.Explain(err); !Untrusted(err) || !strings.Contains(says, "rejects our TLS handshake: tls: bad certificate; we send client certificate in "+path) {
		t.Errorf("an expired certificate: %s", says)
	}
	replace(t, path, old, userOf(t, 2))
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("the new certificate: %v", err)
	}
}

// replace replaces a part of a file.
func replace(t *testing.T, path, old, now string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), old, now, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
