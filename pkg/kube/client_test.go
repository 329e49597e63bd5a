package kube

import (
	"bytes"
	"context"
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
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// write makes a kubeconfig with one context.
func write(t *testing.T, server string, ca []byte, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}]\n"+
		"users: [{name: node, user: %s}]\ncontexts: [{name: here, context: {cluster: c, user: node}}]\ncurrent-context: here\n",
		server, base64.StdEncoding.EncodeToString(ca), user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenSaysWhatIsWrongWithTheKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, text, want string }{
		{"missing", "", "kubeconfig %s does not exist"},
		{"no YAML", "a: [", "kubeconfig %s cannot be read: yaml: line 1: did not find expected node content"},
		{"no current context", "contexts: [{name: a, context: {cluster: c}}]",
			"kubeconfig %s has no current context; set one with kubectl config use-context"},
		{"current context is not there", "current-context: b", `kubeconfig %s has no context "b", which is its current context`},
		{"no cluster", "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
			`kubeconfig %s, context "a": there is no cluster "c"`},
		{"no server", "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]",
			`kubeconfig %s, cluster "c": no server address`},
		{"no user", "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://x'}}]",
			`kubeconfig %s, context "a": there is no user "u"`},
		{"certificate is not there", "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n" +
			"clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: gone.crt}}]",
			`kubeconfig %s, context "a": invalid configuration: unable to read certificate-authority gone.crt for c due to open ` + dir + "/gone.crt: no such file or directory"},
		{"impossible address", "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://[::'}}]",
			""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
			if tt.text != "" {
				if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(Options{Kubeconfig: path})
			if err == nil {
				t.Fatal("no error")
			}
			got, want := err.Error(), strings.ReplaceAll(tt.want, "%s", path)
			if tt.want != "" && got != want && got != strings.ReplaceAll(want, "authority gone.crt", "authority "+dir+"/gone.crt") {
				t.Errorf("error\n got %s\nwant %s", got, want)
			}
			if strings.ContainsRune(got, '\n') || !strings.Contains(got, path) {
				t.Errorf("not one line that names the file: %q", got)
			}
		})
	}
}

func TestOpenWithoutKubeconfigOutsideOfAClusterSaysSo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", write(t, "https://127.0.0.1:1", nil, "{}"))
	_, err := Open(Options{})
	if err == nil || !strings.Contains(err.Error(), "and no kubeconfig: name one with --kubeconfig") {
		t.Errorf("error %v", err)
	}
}

func TestRequestsThatFailAreExplained(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	status := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, ownCA := selfSigned(t, "127.0.0.1", time.Now().Add(time.Hour))
	expired, expiredCA := selfSigned(t, "127.0.0.1", time.Now().Add(-time.Hour))
	other, otherCA := selfSigned(t, "10.9.8.7", time.Now().Add(time.Hour))
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for _, tt := range []struct {
		name   string
		server string
		ca     []byte
		status int
		want   string
	}{
		{"ready", server.URL, trusted, 200, ""},
		{"other authority", server.URL, ownCA, 200, "is signed by an authority that is not trusted"},
		{"expired", serve(t, expired), expiredCA, 200, "has expired or is not valid yet"},
		{"other name", serve(t, other), otherCA, 200, "is for another name: x509: certificate is valid for 10.9.8.7, not 127.0.0.1"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), trusted, 200, "does not speak TLS"},
		{"refused", closedPort(t), trusted, 200, "refuses connections"},
		{"no such host", "https://margay.invalid:6443", trusted, 200, `"margay.invalid"`},
		{"token", server.URL, trusted, 401, "rejects our credentials (401): token in "},
		{"unavailable", server.URL, trusted, 503, "is not available (503)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status = tt.status
			path := write(t, tt.server, tt.ca, "{token: secret}")
			c, err := Open(Options{Kubeconfig: path, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.HTTP.CloseIdleConnections()
			got := c.Explain(c.Ready(t.Context()))
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || strings.Contains(got, "\n") || strings.Contains(got, "secret") {
				t.Errorf("got %q, want one line with %q", got, tt.want)
			}
		})
	}
}

func TestClientsSayWhoTheyAreAndPreferProtobuf(t *testing.T) {
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`)
	}))
	defer server.Close()
	dialled := 0
	c, err := Open(Options{Kubeconfig: write(t, server.URL, nil, "{}"), Version: "v1.2",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.REST(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get().Resource("pods").Do(t.Context()).Get(); err != nil {
		t.Errorf("JSON is not understood: %v", err)
	}
	if got, want := seen.Get("Accept"), "application/vnd.kubernetes.protobuf,application/json"; got != want {
		t.Errorf("Accept: %s, want %s", got, want)
	}
	if got := seen.Get("User-Agent"); got != "margay/v1.2" {
		t.Errorf("User-Agent: %s", got)
	}
	if err := c.Ready(t.Context()); err != nil || dialled != 1 {
		t.Errorf("%v; %d connections made for two clients", err, dialled)
	}
}

func TestGroupsWantsAListOfGroups(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","hello":"proxy"}`)
	}))
	defer server.Close()
	c, err := Open(Options{Kubeconfig: write(t, server.URL, nil, "{}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Groups(t.Context()); err == nil {
		t.Error("an answer that names no groups is taken for a list of none")
	}
}

func TestNamesReadsEveryPageAndNothingButLists(t *testing.T) {
	var accept string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		accept = r.Header.Get("Accept")
		switch r.URL.Path {
		case "/apis/g/v1/tiers":
			page := map[string]string{
				"":  `{"metadata":{"resourceVersion":"5","continue":"x"},"items":[{"metadata":{"name":"a"}},{"metadata":{"namespace":"n","name":"b"}}]}`,
				"x": `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"c"}}]}`,
			}
			_, _ = io.WriteString(w, page[r.URL.Query().Get("continue")])
		case "/apis/g/v1/proxies":
			_, _ = io.WriteString(w, `{"hello":"proxy"}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",
				"message":"x.g is forbidden: User \"u\" cannot list resource \"x\" in API group \"g\" at the cluster scope"}`)
		}
	}))
	defer server.Close()
	c, err := Open(Options{Kubeconfig: write(t, server.URL, nil, "{}")})
	if err != nil {
		t.Fatal(err)
	}
	gv := schema.GroupVersion{Group: "g", Version: "v1"}
	names, err := c.Names(t.Context(), gv.WithResource("tiers"))
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("names %q, %v", names, err)
	}
	if !strings.Contains(accept, "as=PartialObjectMetadataList") {
		t.Errorf("Accept: %s", accept)
	}
	some, err := c.FirstNames(t.Context(), gv.WithResource("tiers"), 2, 2)
	if err != nil || !slices.Equal(some, []types.NamespacedName{{Name: "a"}, {Namespace: "n", Name: "b"}}) {
		t.Errorf("the first names are %v, %v", some, err)
	}
	if names, err := c.Names(t.Context(), gv.WithResource("proxies")); err == nil {
		t.Errorf("an answer that is no list is taken for %q", names)
	}
	if _, err := c.Names(t.Context(), gv.WithResource("x")); !strings.Contains(c.Explain(err), `may not list x.g at the cluster scope`) {
		t.Errorf("forbidden: %s", c.Explain(err))
	}
}

func TestQuietLibraryLowersEverything(t *testing.T) {
	defer klog.ClearLogger()
	for level, want := range map[slog.Level]int{slog.LevelDebug: 2, slog.LevelInfo: 0} {
		var out bytes.Buffer
		QuietLibrary(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		klog.Error("on fire")
		klog.Background().Info("hello")
		if got := strings.Count(out.String(), "level=DEBUG"); got != want || strings.Count(out.String(), "\n") != want {
			t.Errorf("at level %s:\n%s", level, &out)
		}
	}
}

// selfSigned makes a certificate for one address, and the PEM of it as an authority.
func selfSigned(t *testing.T, address string, until time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: address}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serve starts a TLS server with the certificate and returns its URL.
func serve(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// closedPort is the URL of a port where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "https://" + l.Addr().String()
}
