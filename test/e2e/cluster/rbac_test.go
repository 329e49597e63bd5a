package cluster

import (
	"errors"
	"io/fs"
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

// fallbackRBAC is for a tree without deploy/base.
const fallbackRBAC = `apiVersion: v1
kind: ServiceAccount
metadata: {name: margay, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: margay}
rules:
- {apiGroups: [""], resources: [namespaces, pods, nodes, services, serviceaccounts], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch]}
- {apiGroups: [policy.networking.k8s.io, crd.projectcalico.org], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: margay}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: margay}
subjects: [{kind: ServiceAccount, name: margay, namespace: kube-system}]
`

// deployedRBAC is what deploy/base says of the agent's rights; nothing if it says nothing.
func deployedRBAC(t testing.TB) string {
	t.Helper()
	var all []string
	for _, name := range []string{"serviceaccount.yaml", "clusterrole.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../../deploy/base", name))
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return strings.Join(all, "\n---\n")
}

// agentAccess gives the agent's service account its rights, those of deploy/ if it says any, and returns a kubeconfig
// with a token of it.
func (c *cluster) agentAccess() string {
	c.t.Helper()
	if !c.options.noRBAC {
		text := fallbackRBAC
		if deployed := deployedRBAC(c.t); deployed != "" {
			text = deployed
		}
		c.apply(text)
	}
	kubeconfig, err := c.plane.ServiceAccountKubeconfig(c.t.Context(), agentNamespace, agentAccount, 24*time.Hour)
	c.must(err)
	return kubeconfig
}
