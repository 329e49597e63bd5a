package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// way is a way of docs/installation.md to run agents.
type way struct {
	dataplane string
	install   func(*cluster)
	restart   func(*cluster) // has all agents replaced
	uninstall func(*cluster) // and removes from the node what agents have left there
}

var (
	kustomizedBPF      = kustomized("bpf", "resources: [%[1]s/overlays/standalone]\n", "resources: [%[1]s/cleanup]\n")
	kustomizedIPTables = kustomized("iptables", `resources: [%[1]s/overlays/standalone]
components: [%[1]s/components/iptables]
images: [{name: ghcr.io/margay-project/margay, newTag: v0.1.0-iptables}]
patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: margay, namespace: kube-system}, data: {MARGAY_DATAPLANE: iptables}}'}]
`, `resources: [%[1]s/cleanup]
images: [{name: ghcr.io/margay-project/margay, newTag: v0.1.0-iptables}]
`)
)

// kustomized is the way with kustomizations of the user's own.
func kustomized(dataplane, mine, cleanup string) way {
	return way{
		dataplane: dataplane,
		install:   func(c *cluster) { c.kubectl("apply", "-k", c.kustomization("mine", mine)) },
		restart:   func(c *cluster) { c.kubectl("-n", "kube-system", "rollout", "restart", "ds/margay") },
		uninstall: func(c *cluster) {
			c.kubectl("delete", "-k", c.node.file("mine"))
			c.gone()
			c.enforced()
			dir := c.kustomization("cleanup", cleanup)
			c.kubectl("apply", "-k", dir)
			c.rolledOut("margay-cleanup")
			c.kubectl("delete", "-k", dir)
		},
	}
}

const chart = "../../deploy/helm/margay"

// charted is the way with Helm, by what the chart says itself after helm install and helm upgrade.
var charted = way{
	dataplane: "bpf",
	install:   func(c *cluster) { c.helm("install", "margay", chart, "--set", "settings.interface-prefix=cali") },
	restart: func(c *cluster) {
		c.helm("upgrade", "margay", chart, "--reuse-values", "--set", "settings.log-level=debug")
	},
	uninstall: func(c *cluster) {
		c.helm("upgrade", "margay", chart, "--reset-then-reuse-values", "--set", "cleanup.enabled=true")
		c.gone()
		c.rolledOut("margay-cleanup")
		c.helm("uninstall", "margay")
	},
}

// helm runs a command that must succeed, as the cluster's administrator.
func (c *cluster) helm(args ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	args = append(args, "--namespace", "kube-system", "--kubeconfig", c.kubeconfig)
	_, err := c.node.Run(ctx, "", filepath.Join(c.node.bin, "helm"), args...)
	c.must(err)
}

// kustomization writes one and returns its directory. deploy/ is at %[1]s of its text; kustomize wants a relative path.
func (c *cluster) kustomization(name, text string) string {
	c.t.Helper()
	dir := c.node.file(name)
	deploy, err := filepath.Abs("../../deploy")
	c.must(err)
	deploy, err = filepath.Rel(dir, deploy)
	c.must(err)
	c.must(os.Mkdir(dir, 0o755))
	c.must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, text, deploy), 0o600))
	return dir
}
