package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/syncer"
)

// networkSets is the way to the NetworkSets of a server.
func networkSets(t *testing.T, answer http.HandlerFunc) api {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "clusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kube.Open(kube.Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	k := kindOf(t, "NetworkSet", func(syncer.Batch) {})
	a, err := openAPI(client, k.places[0], k.Kind)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A tenant decides how large the list of a kind of Calico's is. Each object is converted and dropped before the next one is read.
func TestAListIsNotInMemoryAsAWhole(t *testing.T) {
	const object = `{"apiVersion": "projectcalico.org/v3", "kind": "NetworkSet", "metadata": {"namespace": "a", "name": "%d"}}`
	converted := make(chan string, 3)
	a := networkSets(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "NetworkSetList", "items": [`)
		for i := range 3 {
			fmt.Fprintf(w, object, i)
			if i < 2 {
				fmt.Fprint(w, ",")
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			select {
			case name := <-converted:
				if name != fmt.Sprint(i) {
					t.Errorf("object %q was converted, want %d", name, i)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("object %d is not converted before the next one is there", i)
			}
		}
		fmt.Fprint(w, `], "metadata": {"resourceVersion": "9", "continue": "more"}}`)
	})
	m, err := a.List(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		converted <- o.(*unstructured.Unstructured).GetName()
		return nil
	})
	if err != nil || m.ResourceVersion != "9" || m.Continue != "more" {
		t.Errorf("the list has metadata %+v, err %v", m, err)
	}
}

func TestListsOfCustomKinds(t *testing.T) {
	const metadata = `"metadata": {"resourceVersion": "9"}`
	for _, tc := range []struct{ what, text, want, err string }{
		{"without objects", `{"items": [], ` + metadata + `}`, "", ""},
		{"with null for them", `{` + metadata + `, "items": null}`, "", ""},
		{"without a field for them", `{` + metadata + `}`, "", ""},
		{"whose objects do not say what they are", `{"kind": "NetworkSetList", "apiVersion": "projectcalico.org/v3", ` + metadata + `, "items": [{"metadata": {"name": "x"}}]}`,
			"projectcalico.org/v3 NetworkSet x", ""},
		{"whose objects are of another version", `{"items": [{"apiVersion": "a/b", "kind": "C", "metadata": {"name": "x"}}], ` + metadata + `}`, "a/b C x", ""},
		{"that is cut off", `{` + metadata + `, "items": [{"metadata": {"name": "x"}}`, "projectcalico.org/v3 NetworkSet x", "EOF"},
		{"that is none", `[]`, "", "is no list"},
		{"whose objects are none", `{"items": {}, ` + metadata + `}`, "", "is no list"},
		{"without a version", `{"items": []}`, "", "is no list"},
		{"that is a page", `<html>`, "", "invalid character"},
	} {
		a := networkSets(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, tc.text)
		})
		var got []string
		_, err := a.List(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
			u := o.(*unstructured.Unstructured)
			got = append(got, u.GetAPIVersion()+" "+u.GetKind()+" "+u.GetName())
			return nil
		})
		if strings.Join(got, ",") != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("a list %s: objects %q, err %v; want %q and %q", tc.what, got, err, tc.want, tc.err)
		}
	}
}

// An error of the server is what the server says, and one of the caller is the caller's.
func TestErrorsOfListsOfCustomKinds(t *testing.T) {
	a := networkSets(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not you", "reason": "Forbidden", "code": 403}`)
	})
	if _, err := a.List(t.Context(), metav1.ListOptions{}, nil); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "not you") {
		t.Errorf("got error %v, want that of the server", err)
	}
	a = networkSets(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"items": [{}, {}], "metadata": {"resourceVersion": "9"}}`)
	})
	n := 0
	if _, err := a.List(context.Background(), metav1.ListOptions{}, func(runtime.Object) error { n++; return errSilent }); err == nil || n != 1 {
		t.Errorf("%d objects after an error, err %v", n, err)
	}
}
