//go:build linux

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
)

// overlapping is a policy that lets web open db's port 81, from addresses that are in more CIDR lists than an endpoint may
// have one address in.
func overlapping(lists int) string {
	var b strings.Builder
	b.WriteString(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: large, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 81}]
`)
	for i := range lists {
		fmt.Fprintf(&b, "  - from: [{ipBlock: {cidr: 192.168.0.0/16, except: [192.168.0.0/24, 192.168.%d.0/30]}}]\n", 1+i%200)
		fmt.Fprintf(&b, "  - from: [{ipBlock: {cidr: 192.168.0.0/16, except: [192.168.0.0/24, 192.168.%d.4/30]}}]\n", 1+i%200)
	}
	return b.String()
}

// A policy that is refused is in the datastore and not in the kernel. explain says so, and does not pass off the one for the
// other.
func TestExplainSaysThatAPolicyIsRefused(t *testing.T) {
	n := newNode(t)
	n.start()
	ask := []string{"explain", "shop/web", "shop/db:81"}
	n.want(1, nil, ask...)
	file := filepath.Join(n.dir, "large.yaml")
	if err := os.WriteFile(file, []byte(overlapping(200)), 0o600); err != nil {
		t.Fatal(err)
	}
	n.ready(func() bool {
		out, code := n.cli(ask...)
		return code == 0 && strings.Contains(out, "not enforced")
	}, "explain to know the policy that is refused")
	n.want(0, []string{"allow: shop/web", "not enforced: the kernel does not enforce this answer; margay show rules has what it enforces\n  shop/db: keeps its last policy: "}, ask...)
	e := decode[explain.Explanation](t, n.want(0, nil, append(ask, "-o", "json")...))
	if len(e.NotEnforced) != 1 || !strings.HasPrefix(e.NotEnforced[0], "shop/db: keeps its last policy: ") {
		t.Errorf("not enforced: %q", e.NotEnforced)
	}
	n.wantReach(81, false)
	if out := n.want(0, nil, "explain", "shop/db", "shop/web"); !strings.Contains(out, "not enforced:") {
		t.Errorf("egress of shop/db: it keeps its last policy for both directions:\n%s", out)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.ready(func() bool {
		out, code := n.cli(ask...)
		return code == 1 && !strings.Contains(out, "not enforced")
	}, "explain to forget the policy that is gone")
}
