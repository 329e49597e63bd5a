package datastore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/margay-project/margay/pkg/syncer/etcd"
)

// write replaces a file at once.
func write(t testing.TB, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A user may read Calico's objects and nothing else. Its token expires, its password changes, its right is taken away.
func TestUsers(t *testing.T) {
	s := newServer(t, "--auth-token=simple", "--auth-token-ttl=2")
	s.start()
	c := s.client(nil, "")
	st := store{t, c}
	st.ready(true)
	st.put("a", "Info")
	for _, user := range []string{"root", "margay"} {
		if _, err := c.UserAdd(t.Context(), user, user+"-secret"); err != nil {
			t.Fatal(err)
		}
	}
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := c.UserGrantRole(t.Context(), "root", "root")
	must(err)
	_, err = c.RoleAdd(t.Context(), "margay")
	must(err)
	_, err = c.UserGrantRole(t.Context(), "margay", "margay")
	must(err)
	_, err = c.AuthEnable(t.Context())
	must(err)
	admin := s.client(nil, "root")
	st.c = admin

	p := newProxy(t, s.address)
	password := filepath.Join(t.TempDir(), "password")
	o := etcd.Options{Endpoints: []string{"http://" + p.address()}}
	anonymous := consume(t, o)
	anonymous.fails("etcd wants a user")
	o.User, o.PasswordFile = "margay", password
	w := consume(t, o)
	w.fails("read the password")
	write(t, password, []byte("wrong\n"))
	w.fails(`etcd does not accept the user "margay"`)
	write(t, password, []byte("margay-secret\n"))
	w.fails(`etcd does not let the user "margay" read keys`)
	grant := func() {
		_, err := admin.RoleGrantPermission(t.Context(), "margay", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermRead))
		must(err)
	}
	grant()
	w.awaits("a=Info")

	awaitExpiry(t, c, "margay")
	st.put("a", "Debug")
	w.awaits("a=Debug")
	p.cut()
	w.fails("cannot be reached")
	st.put("b", "Info")
	w.stays("a=Debug")
	p.open()
	w.soon("a=Debug b=Info")
	s.kill() // simple tokens do not outlive it
	s.start()
	st.put("b", "Debug")
	w.soon("a=Debug b=Debug")

	_, err = admin.UserChangePassword(t.Context(), "margay", "another")
	must(err)
	p.cut()
	p.open()
	w.fails(`etcd does not accept the user "margay"`)
	w.stays("a=Debug b=Debug")
	write(t, password, []byte("another"))
	w.awaits("a=Debug b=Debug")
	until(t, "followed again", func() bool { return w.row().Error == "" })

	_, err = admin.RoleRevokePermission(t.Context(), "margay", root, clientv3.GetPrefixRangeEnd(root))
	must(err)
	p.cut()
	p.open()
	w.fails(`etcd does not let the user "margay" read keys`)
	st.put("b", "Error")
	w.stays("a=Debug b=Debug")
	grant()
	w.awaits("a=Debug b=Error")
}

// awaitExpiry waits until tokens have expired that were in use when it was called. Use renews a token, so it is given many,
// and tries each once. The client has no user.
func awaitExpiry(t testing.TB, c *clientv3.Client, user string) {
	t.Helper()
	tokens := make([]string, 100)
	for i := range tokens {
		r, err := c.Authenticate(t.Context(), user, user+"-secret")
		if err != nil {
			t.Fatal(err)
		}
		tokens[i] = r.Token
	}
	tried := time.Now()
	until(t, "a token has expired", func() bool {
		if time.Since(tried) < 100*time.Millisecond || len(tokens) == 0 {
			return false
		}
		tried = time.Now()
		_, err := c.Get(metadata.AppendToOutgoingContext(t.Context(), rpctypes.TokenFieldNameGRPC, tokens[0]), root)
		tokens = tokens[1:]
		return errors.Is(err, rpctypes.ErrInvalidAuthToken)
	})
}

// authority makes certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = template
	a.pem, _, a.key = a.sign(template)
	return a
}

// sign returns a certificate and its key, in PEM.
func (a *authority) sign(template *x509.Certificate) (cert, keyText []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), key
}

func (a *authority) pair(name string) (cert, key []byte) {
	cert, key, _ = a.sign(&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return cert, key
}

// Certificates of both sides, wrong ones first; files that are replaced count with the next connection.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string { return write(t, filepath.Join(dir, name), content) }
	ours, others := newAuthority(t), newAuthority(t)
	cert, key := ours.pair("etcd")
	s := newServer(t, "--cert-file="+file("server.crt", cert), "--key-file="+file("server.key", key),
		"--client-cert-auth", "--trusted-ca-file="+file("trusted.crt", ours.pem))
	s.scheme = "https"
	s.launch()
	roots := x509.NewCertPool()
	roots.AddCert(parsed(t, ours.pem))
	cert, key = ours.pair("test")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	st := store{t, s.client(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, "")}
	until(t, "etcd serves", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := st.c.Get(ctx, "x")
		return err == nil
	})
	st.ready(true)
	st.put("a", "Info")

	cert, key = others.pair("margay")
	p := newProxy(t, s.address)
	o := etcd.Options{Endpoints: []string{"https://" + p.address()}, CAFile: file("ca.crt", []byte("nothing")),
		CertFile: file("tls.crt", cert), KeyFile: file("tls.key", key)}
	w := consume(t, o)
	w.fails("has no certificate in PEM")
	file("ca.crt", others.pem)
	w.fails("cannot be trusted: tls: failed to verify certificate: x509: certificate signed by unknown authority")
	file("ca.crt", ours.pem)
	w.fails("does not accept the client certificate")
	cert, key = ours.pair("margay")
	file("tls.crt", cert)
	w.fails("read the client certificate") // the key is not its own yet
	file("tls.key", key)
	w.awaits("a=Info")
	st.put("a", "Debug")
	w.awaits("a=Debug")
	file("ca.crt", others.pem)
	p.cut()
	p.open()
	w.fails("cannot be trusted")
	st.put("a", "Error")
	w.stays("a=Debug")
	file("ca.crt", ours.pem)
	w.awaits("a=Error")

	plain := consume(t, etcd.Options{Endpoints: []string{"http://" + p.address()}})
	plain.fails("cannot be reached")
	o.CertFile, o.KeyFile = "", ""
	consume(t, o).fails("does not accept the client certificate")
}

func parsed(t testing.TB, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
