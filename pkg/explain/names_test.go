package explain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// workloads are pods as controllers name and label them, and a Service with two ports.
func workloads() string {
	var b strings.Builder
	pod := func(namespace, name, addrs, labels string) {
		fmt.Fprintf(&b, `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {%s}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {podIPs: [%s]}
---`, name, namespace, labels, addrs)
	}
	pod("shop", "api-6d5f7c-abcde", `{ip: 10.1.0.1}, {ip: "fd01::1"}`, "app: api, pod-template-hash: 6d5f7c")
	pod("shop", "api-6d5f7c-fghij", `{ip: 10.1.0.2}, {ip: "fd01::2"}`, "app: api, pod-template-hash: 6d5f7c, track: canary")
	pod("shop", "api-gateway-77c6-abcde", `{ip: 10.1.0.3}`, "app: gateway, pod-template-hash: 77c6")
	pod("shop", "db-0", `{ip: 10.1.0.4}`, "app: db, statefulset.kubernetes.io/pod-name: db-0, controller-revision-hash: db-1")
	pod("shop", "db-1", `{ip: 10.1.0.5}`, "app: db, statefulset.kubernetes.io/pod-name: db-1, controller-revision-hash: db-1")
	pod("shop", "log-vwxyz", `{ip: 10.1.0.6}`, "app: log, controller-revision-hash: x1")
	pod("shop", "load-12345", `{ip: 10.1.0.7}`, "app: load, batch.kubernetes.io/job-name: load")
	several := func(name, addr string) {
		fmt.Fprintf(&b, `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {track: canary}}
spec:
  nodeName: n1
  containers:
  - {name: a, ports: [{name: dns, containerPort: 53, protocol: UDP}, {name: metrics, containerPort: 9001}]}
  - {name: b, ports: [{name: dns, containerPort: 53}, {name: metrics, containerPort: 9002}]}
  - {name: c, ports: [{name: metrics, containerPort: 9001}]}
status: {podIPs: [{ip: %s}]}
---`, name, addr)
	}
	several("resolver", "10.1.0.9")
	pod("job", "web", `{ip: 10.1.0.8}`, "app: web")
	b.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec:
  clusterIPs: [10.96.0.7, "fd96::7"]
  ports: [{name: web, port: 80}, {name: status, port: 9000}, {name: status-udp, port: 9000, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-4, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.1]}, {addresses: [10.1.0.2]}]
ports: [{name: web, port: 8080}, {name: status, port: 9001}, {name: status-udp, port: 9002, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-6, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv6
endpoints: [{addresses: ["fd01::1"]}, {addresses: ["fd01::2"]}]
ports: [{name: web, port: 8080}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: job}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: canary, namespace: shop}
spec:
  podSelector: {matchLabels: {track: canary}}
  ingress: [{ports: [{port: 9001}, {port: 53, protocol: UDP}]}]
`)
	return b.String()
}

func stateOf(t *testing.T, text string) *explain.State {
	t.Helper()
	var updates []model.Update
	for _, doc := range kinds.Parse("x.yaml", []byte(text)) {
		if len(doc.Problems) > 0 {
			t.Fatal(doc.Problems)
		}
		updates = append(updates, doc.Updates...)
	}
	return explain.NewState(updates)
}

// lines are the verdict and packet of everything that was answered.
func lines(e *explain.Explanation) []string {
	if len(e.Answers) == 0 {
		return []string{e.Verdict + " " + e.Packet}
	}
	all := []string{fmt.Sprintf("%s: %s to %s", e.Verdict, e.Src, e.Dst)}
	for _, a := range e.Answers {
		all = append(all, lines(a)...)
	}
	return all
}

func TestNamesThatPeopleTypeAreFound(t *testing.T) {
	s := stateOf(t, workloads())
	const to1, to2 = "allow 10.1.0.4 -> 10.1.0.1:8080 tcp", "deny 10.1.0.4 -> 10.1.0.2:8080 tcp"
	for _, test := range []struct {
		name, src, dst, namespace string
		v6                        bool
		want                      []string
	}{
		{"Service by name", "shop/db-0", "svc/shop/api:80", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by its name alone", "shop/db-0", "shop/api:80", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by port name", "shop/db-0", "shop/svc/api:web", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by address", "shop/db-0", "10.96.0.7:80", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by DNS name", "shop/db-0", "api.shop:80", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by full DNS name", "shop/db-0", "api.shop.svc.cluster.local:80", "", false, []string{"mixed: shop/db-0 to Service shop/api", to1, to2}},
		{"Service by IPv6 address", "shop/api-6d5f7c-abcde", "[fd96::7]:80", "", false, []string{
			"mixed: shop/api-6d5f7c-abcde to Service shop/api", "allow fd01::1 -> [fd01::1]:8080 tcp", "deny fd01::1 -> [fd01::2]:8080 tcp"}},
		{"port of TCP and UDP", "shop/db-0", "shop/api:9000", "", false, []string{
			"allow: shop/db-0 to Service shop/api", "allow 10.1.0.4 -> 10.1.0.1:9001 tcp", "allow 10.1.0.4 -> 10.1.0.2:9001 tcp"}},
		{"port of UDP", "shop/db-0", "shop/api:9000/udp", "", false, []string{
			"mixed: shop/db-0 to Service shop/api", "allow 10.1.0.4 -> 10.1.0.1:9002 udp", "deny 10.1.0.4 -> 10.1.0.2:9002 udp"}},
		{"Deployment, and no other whose name begins so", "deploy/api", "shop/db-0:1", "shop", false, []string{
			"allow: Deployment shop/api to shop/db-0", "allow 10.1.0.1 -> 10.1.0.4:1 tcp", "allow 10.1.0.2 -> 10.1.0.4:1 tcp"}},
		{"ReplicaSet", "shop/rs/api-gateway-77c6", "shop/db-0:1", "", false, []string{"allow 10.1.0.3 -> 10.1.0.4:1 tcp"}},
		{"StatefulSet", "203.0.113.1", "sts/shop/db:1", "", false, []string{
			"allow: 203.0.113.1 to StatefulSet shop/db", "allow 203.0.113.1 -> 10.1.0.4:1 tcp", "allow 203.0.113.1 -> 10.1.0.5:1 tcp"}},
		{"DaemonSet", "ds/log", "shop/db-0:1", "shop", false, []string{"allow 10.1.0.6 -> 10.1.0.4:1 tcp"}},
		{"Job", "shop/job/load", "shop/db-0:1", "", false, []string{"allow 10.1.0.7 -> 10.1.0.4:1 tcp"}},
		{"a namespace that is called as a kind is", "job/web", "shop/db-0:1", "", false, []string{"allow 10.1.0.8 -> 10.1.0.4:1 tcp"}},
		{"pod, with its kind", "pod/db-1", "shop/db-0:1", "shop", false, []string{"allow 10.1.0.5 -> 10.1.0.4:1 tcp"}},
		{"unique prefix", "shop/log", "shop/api-gat:http", "", false, []string{"allow 10.1.0.6 -> 10.1.0.3:8080 tcp"}},
		{"port name of pods", "shop/log", "shop/deploy/api:http", "", false, []string{
			"mixed: shop/log-vwxyz to Deployment shop/api", "allow 10.1.0.6 -> 10.1.0.1:8080 tcp", "deny 10.1.0.6 -> 10.1.0.2:8080 tcp"}},
		{"port name of two protocols", "shop/log", "shop/resolver:dns", "", false, []string{
			"mixed: shop/log-vwxyz to shop/resolver", "deny 10.1.0.6 -> 10.1.0.9:53 tcp", "allow 10.1.0.6 -> 10.1.0.9:53 udp"}},
		{"port name of two protocols, and one of them", "shop/log", "shop/resolver:dns/udp", "", false, []string{"allow 10.1.0.6 -> 10.1.0.9:53 udp"}},
		{"port name of two numbers", "shop/log", "10.1.0.9:metrics", "", false, []string{
			"mixed: shop/log-vwxyz to shop/resolver (10.1.0.9)", "allow 10.1.0.6 -> 10.1.0.9:9001 tcp", "deny 10.1.0.6 -> 10.1.0.9:9002 tcp"}},
		{"node", "node/n2", "shop/db-0:1", "", false, []string{"allow 192.168.0.2 -> 10.1.0.4:1 tcp"}},
		{"Service over IPv6", "shop/api-6d5f7c-abcde", "shop/api:80", "", true, []string{
			"mixed: shop/api-6d5f7c-abcde to Service shop/api", "allow fd01::1 -> [fd01::1]:8080 tcp", "deny fd01::1 -> [fd01::2]:8080 tcp"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := explain.ParseRequest(test.src, test.dst)
			if err != nil {
				t.Fatal(err)
			}
			r.Namespace, r.IPv6 = test.namespace, test.v6
			e, err := s.Explain(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lines(e)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesThatSeveralHaveAreRefused(t *testing.T) {
	s := stateOf(t, workloads())
	for src, want := range map[string]string{
		"shop/api":        "no pod shop/api; the names of 3 pods begin with it: shop/api-6d5f7c-abcde, shop/api-6d5f7c-fghij, shop/api-gateway-77c6-abcde; give one of them, or deploy/NAME for all pods of a workload",
		"deploy/api":      "Deployment default/api has no pod with its own IP address (finished pods have none, and host-network pods that of their node); is shop/api-6d5f7c-abcde, shop/api-6d5f7c-fghij or shop/api-gateway-77c6-abcde meant?",
		"shop/deploy/log": "Deployment shop/log has no pod with its own IP address (finished pods have none, and host-network pods that of their node)",
	} {
		r, err := explain.ParseRequest(src, "shop/db-0:1")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := s.Explain(r); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v; want %s", src, e, err, want)
		}
	}
}

func TestInAVeryLargeNamespaceNobodyWaitsForASuggestion(t *testing.T) {
	pods := func(n int) *explain.State {
		var updates []model.Update
		for i := range n {
			updates = append(updates, model.EndpointUpdate{
				ID:       model.WorkloadID("shop", fmt.Sprintf("web-%05d", i)),
				Endpoint: &model.Endpoint{Node: "n1", Iface: fmt.Sprintf("cali%d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})}},
			})
		}
		return explain.NewState(updates)
	}
	r, err := explain.ParseRequest("shop/wbe-00007", "203.0.113.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{5000: true, 5001: false} {
		if _, err := pods(n).Explain(r); err == nil || strings.Contains(err.Error(), "is shop/web-00007 meant?") != want {
			t.Errorf("%d pods: %v", n, err)
		}
	}
}

func TestWithoutAPortEveryPortIsJudged(t *testing.T) {
	s := stateOf(t, workloads()+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: job}
spec:
  podSelector: {}
  ingress: [{ports: [{port: http}]}]
`)
	for _, test := range []struct {
		dst  string
		want []string
	}{
		{"shop/api-6d5f7c-fghij", []string{
			"tcp 1-9000 deny", "tcp 9001-9001 allow", "tcp 9002-65535 deny", "udp 1-52 deny", "udp 53-53 allow", "udp 54-65535 deny",
			"sctp 1-65535 deny", "icmp 0-0 deny type 8"}},
		{"shop/api-6d5f7c-fghij/udp", []string{"udp 1-52 deny", "udp 53-53 allow", "udp 54-65535 deny"}},
		{"job/web/tcp", []string{"tcp 1-8079 deny", "tcp 8080-8080 allow", "tcp 8081-65535 deny"}},
		{"[fd01::1]", []string{"tcp 1-65535 allow", "udp 1-65535 allow", "sctp 1-65535 allow", "icmpv6 0-0 allow type 128"}},
	} {
		r, err := explain.ParseRequest("shop/api-6d5f7c-abcde", test.dst)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range e.Ports {
			text := fmt.Sprintf("%s %d-%d %s", p.Protocol, p.From, p.To, p.Verdict)
			if p.ICMPType != nil {
				text += fmt.Sprintf(" type %d", *p.ICMPType)
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.dst, diff)
		}
		if mixed := strings.Contains(strings.Join(got, " "), "deny") && strings.Contains(strings.Join(got, " "), "allow"); mixed != (e.Verdict == explain.VerdictMixed) {
			t.Errorf("%s: verdict %s of %v", test.dst, e.Verdict, got)
		}
	}
}
