package corpus

import "testing"

// An Allow does not match a pod whose Namespace is not known by what the labels of that are not; a Deny does. It is no case of the corpus:
// without policy such a pod sends nothing, and cases are also tried without.
func TestAllowRulesDoNotGuessLabelsOfNamespaces(t *testing.T) {
	c, err := parse("unknown.txtar", []byte(`A Namespace that is not known (§7).
-- resources.yaml --
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {env: prod}}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: n2, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.1.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: unknown, labels: {app: x}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.1.99}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out, namespace: unknown}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  selector: app == 'db'
  ingress:
  - {action: Allow, protocol: TCP, source: {namespaceSelector: env != 'dev'}, destination: {ports: [1]}}
  - {action: Allow, protocol: TCP, source: {namespaceSelector: all()}, destination: {ports: [2]}}
  - {action: Deny, protocol: TCP, source: {namespaceSelector: env != 'dev'}, destination: {ports: [3]}}
  - {action: Allow, protocol: TCP, destination: {ports: [3]}}
-- expect --
shop/web -> shop/db:1/tcp   allow  ingress default/np/shop/db#ingress[0]
unknown/x -> shop/db:1/tcp  deny   ingress default/np/shop/db#end-of-tier
unknown/x -> shop/db:2/tcp  allow  ingress default/np/shop/db#ingress[1]
unknown/x -> shop/db:3/tcp  deny   ingress default/np/shop/db#ingress[2]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, []Case{c}, compiledEngines()...)
}
