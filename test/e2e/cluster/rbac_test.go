package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// agentNamespace and agentAccount are whom the agent runs as.
const (
	agentNamespace = "kube-system"
	agentAccount   = "margay"
)

// deployedRBAC is what deploy/base says of the agent's rights.
func deployedRBAC(t testing.TB) string {
	t.Helper()
	var all []string
	for _, name := range []string{"serviceaccount.yaml", "clusterrole.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../../deploy/base", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return strings.Join(all, "\n---\n")
}

// agentAccess gives the agent's service account the rights that deploy/base gives it, and returns a kubeconfig with a
// token of it.
func (c *cluster) agentAccess() string {
	c.t.Helper()
	if !c.options.noRBAC {
		c.apply(deployedRBAC(c.t))
	}
	kubeconfig, err := c.plane.ServiceAccountKubeconfig(c.t.Context(), agentNamespace, agentAccount, 24*time.Hour)
	c.must(err)
	return kubeconfig
}
