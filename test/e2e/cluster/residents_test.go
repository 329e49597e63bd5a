package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/margay-project/margay/pkg/lab"
)

const (
	// residentSpace has the pods whose way into enforcement is measured, outsideSpace those that talk to them.
	residentSpace, outsideSpace = "bench", "around"
	// probePort is what they are probed at.
	probePort = 7000
	// residentApps is how many different policies the pods have, by turns.
	residentApps = 20
)

// residentPolicies are, for each pod: closed by default, probes, DNS, and two directions of its own application, whose
// peers are other local pods and remote ones by thousands.
func residentPolicies() string {
	all := `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: bench, name: closed}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: bench, name: probes}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{namespaceSelector: {matchLabels: {team: around}}, podSelector: {matchLabels: {app: prober}}}], ports: [{port: 7000, protocol: UDP}]}]
  egress: [{to: [{namespaceSelector: {matchLabels: {team: around}}, podSelector: {matchLabels: {app: sink}}}], ports: [{port: 7000, protocol: UDP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: bench, name: dns}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]
`
	for i := range residentApps {
		all += fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: bench, name: app-%[1]d}
spec:
  podSelector: {matchLabels: {app: app-%[1]d}}
  policyTypes: [Ingress, Egress]
  ingress:
  - {from: [{podSelector: {matchLabels: {app: app-%[2]d}}}], ports: [{port: http}]}
  - {from: [{namespaceSelector: {matchLabels: {team: team-%[1]d}}, podSelector: {matchLabels: {tier: web}}}], ports: [{port: http}]}
  egress: [{to: [{namespaceSelector: {matchLabels: {env: prod}}, podSelector: {matchLabels: {tier: db}}}], ports: [{port: 5432}]}]
`, i, (i+1)%residentApps)
	}
	return all
}

// resident is a pod of the first node. The test has made its network itself, and tells the API server of it in two
// steps: that there is a pod, and what its addresses are.
type resident struct {
	namespace, name string
	object          *corev1.Pod
	pod             *lab.Pod
}

// residents makes and unmakes them.
type residents struct {
	*population
	node *node

	made atomic.Int64 // also those that are gone: no address is used twice
	all  []*resident  // those that stay
}

func (p *population) newResidents() *residents {
	p.c.t.Helper()
	r := &residents{population: p, node: p.c.nodes[0]}
	ctx := p.c.t.Context()
	p.c.must(p.namespaceFor(ctx, residentSpace, map[string]string{"team": "bench", "env": "prod"}),
		p.namespaceFor(ctx, outsideSpace, map[string]string{"team": "around"}))
	p.c.apply(residentPolicies())
	return r
}

// addrs are addresses that no pod had before.
func (r *residents) addrs() (addrs []netip.Addr, number int) {
	number = int(r.made.Add(1))
	for _, prefix := range r.node.pods {
		b := prefix.Addr().AsSlice()
		b[len(b)-2] += byte((number + 1) >> 8)
		b[len(b)-1] = byte(number + 1)
		a, _ := netip.AddrFromSlice(b) // of 4 or 16 bytes
		addrs = append(addrs, a)
	}
	return addrs, number
}

// plug makes a pod whose address the API server does not know: its interface is there and settled. Safe for concurrent use.
func (r *residents) plug(ctx context.Context, namespace, app string) (*resident, error) {
	addrs, number := r.addrs()
	if app == "" {
		app = fmt.Sprintf("app-%d", number%residentApps)
	}
	s := &resident{namespace: namespace, name: fmt.Sprintf("%s-%d", app, number)}
	labels := map[string]string{"app": app, "tier": "web", "pod-template-hash": "5f7d8c9b6"}
	s.object = podObject(s.namespace, s.name, r.node.Name(), labels, addrs...)
	var err error
	if s.pod, err = r.node.AddPod(s.namespace, s.name, addrs...); err != nil {
		return nil, err
	}
	_, err = r.client.CoreV1().Pods(s.namespace).Create(ctx, s.object, metav1.CreateOptions{})
	return s, err
}

// tell tells the API server the pod's addresses, as a kubelet does.
func (r *residents) tell(ctx context.Context, s *resident) error {
	patch, err := json.Marshal(map[string]any{"status": s.object.Status})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Pods(s.namespace).Patch(ctx, s.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("say the addresses of pod %s: %w", s.pod.Name(), err)
	}
	return nil
}

// remove takes away the network of the pod and then deletes it, as kubelets do.
func (r *residents) remove(ctx context.Context, s *resident) error {
	return errors.Join(r.node.DelPod(s.pod), r.forget(ctx, s.namespace, s.name))
}

// settleTo sees to it that as many pods of residentSpace stay, and that the API server knows their addresses.
func (r *residents) settleTo(n int) {
	r.c.t.Helper()
	more := make([]*resident, max(0, n-len(r.all)))
	r.c.each(len(more), func(ctx context.Context, i int) (err error) {
		if more[i], err = r.plug(ctx, residentSpace, ""); err != nil {
			return err
		}
		return r.tell(ctx, more[i])
	})
	r.all = append(r.all, more...)
}

// awaitLocal waits until the agent enforces as many pods and knows no others of its node, and knows as many pods of the
// cluster.
func (a *agent) awaitLocal(enforced, pods int) {
	a.c.t.Helper()
	a.c.await(2*time.Minute, fmt.Sprintf("the agent on %s to enforce %d pods of %d", a.node.Name(), enforced, pods), func() bool {
		g := a.gauges()
		return g.at("margay_endpoints", `state="enforced"`) == float64(enforced) && g.sum("margay_endpoints") == float64(enforced) &&
			g.at("margay_kind_objects", `kind="Pod"`) == float64(pods) && g.at("margay_unwritten_changes", "") == 0
	})
}
