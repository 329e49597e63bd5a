package kube

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// statusOf is the HTTP status of an answer; 0: there was none.
func statusOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func TestARefusedTokenIsReadAgainFromTheKubeconfig(t *testing.T) {
	var shown, bodies []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if shown[len(shown)-1] != "good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	path := write(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), "{token: old}")
	c, err := Open(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	if want := "token in " + path; c.Identity.Credentials != want {
		t.Errorf("credentials %q, want %q", c.Identity.Credentials, want)
	}
	ready := func(want ...string) error {
		t.Helper()
		shown = nil
		err := c.Ready(t.Context())
		if !slices.Equal(shown, want) {
			t.Errorf("shown %q, want %q", shown, want)
		}
		return err
	}
	put := func(old, new string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), "token: "+old, "token: "+new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ready("old"); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("an expired token: %v", err)
	}
	put("old", "worse")
	if err := ready("old", "worse"); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("another expired token: %v", err)
	}
	put("worse", "good")
	client, err := c.REST(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	bodies = nil
	if err := client.Post().AbsPath("/x").Body([]byte("hello")).Do(t.Context()).Error(); err != nil {
		t.Errorf("a good token: %v", err)
	}
	if want := []string{"hello", "hello"}; !slices.Equal(bodies, want) {
		t.Errorf("bodies %q, want %q", bodies, want)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := ready("good"); err != nil {
		t.Errorf("without the file: %v", err)
	}
}

func TestARefusedTokenIsReadAgainFromItsFile(t *testing.T) {
	var shown []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		if shown[len(shown)-1] != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	put := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old\n")
	c, err := Open(Options{Kubeconfig: write(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), "{tokenFile: "+file+"}")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); statusOf(err) != http.StatusUnauthorized || len(shown) != 1 {
		t.Errorf("an expired token: %v, shown %q", err, shown)
	}
	put("good\n")
	shown = nil
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("a good token: %v, shown %q", err, shown)
	}
}
