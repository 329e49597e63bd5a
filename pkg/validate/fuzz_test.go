package validate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	. "github.com/margay-project/margay/pkg/validate"
)

func FuzzParse(f *testing.F) {
	for name, text := range nasty {
		if len(text) < 1<<12 && !strings.Contains(name, "bomb") { // small and quick ones
			f.Add([]byte(text))
		}
	}
	seeds, err := filepath.Glob("testdata/seed/*")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		docs := kinds.Parse("dir/a.yaml", text)
		checkDocuments(t, docs, string(text))
		if diff := cmp.Diff(docs, kinds.Parse("dir/a.yaml", text), compare); diff != "" {
			t.Fatalf("two results:\n%s", diff)
		}
		for _, d := range docs {
			for _, u := range d.Updates {
				p, ok := u.(model.PolicyUpdate)
				isNone := p.Policy == nil && p.Key.Enforced().Kind == model.KindGlobalNetworkPolicy // it is about hosts alone
				if ok && !isNone {
					checkPolicy(t, p.Key.Enforced().Kind == model.KindKubernetesNetworkPolicy, p.Policy)
				}
			}
			if n := len(Withdraw(d.Updates)); n != len(d.Updates) {
				t.Errorf("%d updates, %d withdrawn", len(d.Updates), n)
			}
		}
	})
}

// checkPolicy checks what the model promises of every policy, and what Kubernetes does of its own.
func checkPolicy(t *testing.T, kubernetes bool, p *model.Policy) {
	t.Helper()
	if p == nil || p.Selector == nil {
		t.Fatalf("policy %+v", p)
	}
	if !p.AppliesIngress && len(p.Ingress) > 0 || !p.AppliesEgress && len(p.Egress) > 0 {
		t.Errorf("rules of a direction the policy is not about: %+v", p)
	}
	for _, r := range append(append([]model.Rule(nil), p.Ingress...), p.Egress...) {
		for _, e := range []model.Entity{r.Source, r.Destination} {
			for _, n := range append(append(e.Nets[:0:0], e.Nets...), e.NotNets...) {
				if n != n.Masked() || !n.IsValid() || n.Addr().Is4In6() {
					t.Errorf("prefix %v", n)
				}
			}
			for _, ports := range e.Ports {
				if kubernetes && ports.Lo < 1 || ports.Lo > ports.Hi {
					t.Errorf("ports %v", ports)
				}
			}
			if (len(e.Ports) > 0 || kubernetes && len(e.NamedPorts) > 0) && (r.Protocol == nil || !model.HasPorts(*r.Protocol)) {
				t.Errorf("ports without a protocol that has them: %+v", r)
			}
		}
	}
}
