package explain_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

const shop = `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.168.0.1}, {type: InternalIP, address: "fd00:192::1"}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}, {name: dns, protocol: UDP, containerPort: 53}]}]}
status: {podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.2}, {ip: "fd00::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: default}
spec: {nodeName: n1, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: shop}
spec: {nodeName: n1, hostNetwork: true, containers: [{name: c}]}
status: {podIPs: [{ip: 192.168.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: shop}
spec: {nodeName: n9, hostNetwork: true, containers: [{name: c}]}
status: {podIPs: [{ip: 192.168.0.9}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: idle, namespace: shop}
spec: {clusterIP: 10.96.0.8, clusterIPs: [10.96.0.8], ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: loose, namespace: shop}
spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7], selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: loose-pods, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None], selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: idle-1, namespace: shop, labels: {kubernetes.io/service-name: idle}}
addressType: IPv4
endpoints: []
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.2]}]
ports: [{port: 5432, protocol: TCP}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
`

func state(t *testing.T) *explain.State {
	t.Helper()
	var updates []model.Update
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop)) {
		if len(doc.Problems) > 0 {
			t.Fatal(doc.Problems)
		}
		updates = append(updates, doc.Updates...)
	}
	return explain.NewState(updates)
}

func TestEndsAreNamesOrAddressesOfOneFamily(t *testing.T) {
	s := state(t)
	for _, test := range []struct {
		name, src, dst  string
		v6              bool
		wantSrc, wantTo string
		allow           bool
		egress, ingress bool   // judged
		note            string // part of it
	}{
		{"pod to pod", "shop/web", "shop/db:5432", false, "shop/web (10.0.0.1)", "shop/db (10.0.0.2)", true, true, true, ""},
		{"pod to pod, other port", "shop/web", "shop/db:5433", false, "shop/web (10.0.0.1)", "shop/db (10.0.0.2)", false, true, true, ""},
		{"pod to pod over IPv6", "shop/web", "shop/db:5432", true, "shop/web (fd00::1)", "shop/db (fd00::2)", true, true, true, ""},
		{"namespace default", "old", "shop/web:80", false, "default/old (10.0.0.3)", "shop/web (10.0.0.1)", true, true, true, ""},
		{"by address", "10.0.0.1", "10.0.0.2:5432", false, "shop/web (10.0.0.1)", "shop/db (10.0.0.2)", true, true, true, ""},
		{"by IPv6 address", "[fd00::1]", "[fd00::2]:5432", false, "shop/web (fd00::1)", "shop/db (fd00::2)", true, true, true, ""},
		{"address decides the family", "shop/web", "[fd00::2]:5432", false, "shop/web (fd00::1)", "shop/db (fd00::2)", true, true, true, ""},
		{"mapped address", "::ffff:10.0.0.1", "shop/db:5432", false, "shop/web (10.0.0.1)", "shop/db (10.0.0.2)", true, true, true, ""},
		{"outside to pod", "203.0.113.1", "shop/db:5432", false, "203.0.113.1", "shop/db (10.0.0.2)", false, false, true, "the source is no pod"},
		{"pod to outside", "shop/db", "203.0.113.1:443", false, "shop/db (10.0.0.2)", "203.0.113.1", true, true, false, "the destination is no pod"},
		{"own node to pod", "192.168.0.2", "shop/db:1", false, "node n2 (192.168.0.2)", "shop/db (10.0.0.2)", true, false, false, "its own pods"},
		{"other node to pod", "192.168.0.1", "shop/db:1", false, "node n1 (192.168.0.1)", "shop/db (10.0.0.2)", false, false, true, "the source is no pod"},
		{"pod to own node", "shop/web", "192.168.0.1:10250", false, "shop/web (10.0.0.1)", "node n1 (192.168.0.1)", true, true, false, "--default-endpoint-to-host-action"},
		{"pod to other node", "shop/web", "192.168.0.2:10250", false, "shop/web (10.0.0.1)", "node n2 (192.168.0.2)", true, true, false, "the destination is no pod"},
		{"pod to itself", "shop/db", "10.0.0.2:9999", false, "shop/db (10.0.0.2)", "shop/db (10.0.0.2)", true, false, false, "to itself"},
		{"icmpv6 is IPv6", "shop/web", "shop/db/icmpv6", false, "shop/web (fd00::1)", "shop/db (fd00::2)", false, true, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := explain.ParseRequest(test.src, test.dst)
			if err != nil {
				t.Fatal(err)
			}
			r.IPv6 = test.v6
			res, err := s.Explain(r)
			if err != nil {
				t.Fatal(err)
			}
			type answer struct {
				Src, Dst               string
				Allow, Egress, Ingress bool
			}
			judged := func(s *explain.Side) bool { return s.Decision != explain.DecisionNone }
			got := answer{res.Src, res.Dst, res.Verdict == explain.VerdictAllow, judged(res.Egress), judged(res.Ingress)}
			if diff := cmp.Diff(answer{test.wantSrc, test.wantTo, test.allow, test.egress, test.ingress}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(res.Note, test.note) || test.note == "" && res.Note != "" {
				t.Errorf("note %q, want one about %q", res.Note, test.note)
			}
		})
	}
}

func TestTunnelsFromPodsComeWithACaveat(t *testing.T) {
	s := state(t)
	for _, test := range []struct {
		src, dst string
		want     bool
	}{
		{"shop/web", "shop/db/4", true}, {"shop/web", "203.0.113.1:4789/udp", true}, {"shop/web", "shop/db:4789/tcp", false},
		{"shop/web", "shop/db:4790/udp", false}, {"203.0.113.1", "shop/db/4", false}, {"shop/db", "shop/db/4", false},
		{"shop/web", "shop/db/41", true}, {"shop/web", "shop/db/47", true}, {"shop/web", "203.0.113.1:6081/udp", true}, {"shop/web", "203.0.113.1:8472/udp", true},
	} {
		r, err := explain.ParseRequest(test.src, test.dst)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if (res.Caveat != "") != test.want {
			t.Errorf("%s to %s: caveat %q", test.src, test.dst, res.Caveat)
		}
	}
}

func TestExplainSaysWhatIsWrongWithAQuestion(t *testing.T) {
	s := state(t)
	for _, test := range []struct {
		name, src, dst string
		v6             bool
		want           string
	}{
		{"unknown pod", "shop/nope", "shop/db:80", false, "no pod shop/nope has its own IP address"},
		{"host-network pod", "shop/proxy", "shop/db:80", false, "pod shop/proxy is in the network of its node and has its addresses: give node/n1 in its place"},
		{"host-network pod as the destination", "shop/web", "shop/proxy:80", false, "give node/n1 in its place"},
		{"host-network pod of an unknown node", "shop/web", "shop/lost:80", false, "pod shop/lost is in the network of its node n9, of which no object with an address is known: give the node's address"},
		{"Service without backends", "shop/web", "10.96.0.8:80", false, "Service shop/idle has no backends on port 80/tcp"},
		{"Service without EndpointSlices", "shop/web", "svc/shop/loose:80", false, "there is no EndpointSlice of Service shop/loose, so its backends are not known: ask about a pod"},
		{"headless Service without EndpointSlices", "shop/web", "svc/shop/loose-pods:80", false, "there is no EndpointSlice of Service shop/loose-pods"},
		{"port that a Service has not", "shop/web", "10.96.0.9:80", false, "Service shop/db has no port 80; its ports are 5432/tcp"},
		{"protocol that no Service has", "shop/web", "svc/shop/db/icmp", false, "Service shop/db does not forward icmp"},
		{"Service that does not exist", "shop/web", "svc/shop/bd:80", false, "no Service shop/bd; is shop/db meant?"},
		{"Service as the source", "svc/shop/db", "shop/web:80", false, "Service shop/db opens no connections"},
		{"address of a Service as the source", "10.96.0.9", "shop/web:80", false, "10.96.0.9 is an address of Service shop/db, which opens no connections"},
		{"no pod at all", "203.0.113.1", "203.0.113.2:80", false, "no policy judges this flow"},
		{"no family in common", "old", "[fd00::2]:80", false, "no address family in common"},
		{"IPv6 asked of one that has none", "old", "shop/web:80", true, "default/old has no IPv6 address"},
		{"IPv6 asked of an IPv4 address", "shop/web", "10.0.0.2:80", true, "shop/db (10.0.0.2) has no IPv6 address"},
		{"icmp over IPv6", "shop/web", "shop/db/icmp", true, "over IPv6 ask for icmpv6"},
		{"icmp between IPv6 addresses", "fd00::1", "fd00::2/icmp", false, "shop/web (fd00::1) has no IPv4 address"},
		{"icmpv6 between IPv4 addresses", "10.0.0.1", "10.0.0.2/icmpv6", false, "shop/web (10.0.0.1) has no IPv6 address"},
		{"protocol 58 between IPv4 addresses", "10.0.0.1", "10.0.0.2/58", false, "has no IPv6 address"},
		{"loopback as the source", "127.0.0.1", "shop/web:80", false, "127.0.0.1 is a loopback address: no packet that policy judges comes from there"},
		{"loopback as the destination", "shop/web", "127.0.0.1:80", false, "127.0.0.1 is a loopback address: what is sent there never leaves the sender"},
		{"IPv6 loopback", "shop/web", "[::1]:80", false, "::1 is a loopback address"},
		{"no address", "0.0.0.0", "shop/web:80", false, "0.0.0.0 is the unspecified address"},
		{"multicast as the source", "224.0.0.1", "shop/web:80", false, "224.0.0.1 is a multicast address"},
		{"port name that the pod has not", "shop/db", "shop/web:https", false, `pod shop/web has no port named "https"; its ports are http (8080/tcp), dns (53/udp)`},
		{"port name of another protocol", "shop/db", "shop/web:http/udp", false, `pod shop/web has no port named "http" of protocol udp`},
		{"port name where none is known", "shop/web", "203.0.113.1:http", false, "203.0.113.1 is no pod, so port \"http\" has to be a number"},
		{"kind that is none", "shop/web", "shop/cronjob/x:80", false, `"cronjob" is not a kind that can be explained`},
		{"name that is none", "shop//web", "shop/db:80", false, "is not a name"},
		{"node that is none", "node/n9", "shop/db:80", false, "no node n9 with an address"},
		{"another namespace", "web", "shop/db:80", false, "no pod default/web has its own IP address (finished pods have none, and host-network pods that of their node); is shop/web meant?"},
		{"address as the destination that is none", "shop/web", "300.0.0.1:80", false, "300.0.0.1 is not an IP address"},
		{"address as the source that is none", "10.0.0.256", "shop/web:80", false, "10.0.0.256 is not an IP address"},
		{"name outside of the cluster", "shop/web", "example.com:443", false,
			"no pod or Service default/example.com has its own IP address (finished pods have none, and host-network pods that of their node); names outside of the cluster are not resolved: give the address"},
		{"name with dots in a namespace", "shop/web", "shop/v1.2.3:443", false, "no pod or Service shop/v1.2.3 has its own IP address (finished pods have none, and host-network pods that of their node)"},
		{"misspelt", "shop/wbe", "shop/db:80", false, "is shop/web meant?"},
		{"misspelt namespace", "shpo/web", "shop/db:80", false, "is shop/web meant?"},
		{"misspelt Service", "shop/web", "shop/idel:80", false, "no pod or Service shop/idel has its own IP address (finished pods have none, and host-network pods that of their node); is shop/idle meant?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := explain.ParseRequest(test.src, test.dst)
			r.IPv6 = test.v6
			var res *explain.Explanation
			if err == nil {
				res, err = s.Explain(r)
			}
			if err == nil {
				t.Fatalf("no error, but %+v", res)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want one with %q", err, test.want)
			}
		})
	}
}

func TestRequestsAreRead(t *testing.T) {
	for _, test := range []struct {
		dst  string
		want explain.Request
	}{
		{"shop/db:5432", explain.Request{Dst: "shop/db", Port: 5432}},
		{"shop/db:5432/tcp", explain.Request{Dst: "shop/db", Port: 5432, Protocol: 6}},
		{"shop/db:53/UDP", explain.Request{Dst: "shop/db", Port: 53, Protocol: 17}},
		{"db:53/udp", explain.Request{Dst: "db", Port: 53, Protocol: 17}},
		{"db:http", explain.Request{Dst: "db", PortName: "http"}},
		{"shop/db:http/tcp", explain.Request{Dst: "shop/db", PortName: "http", Protocol: 6}},
		{"shop/db", explain.Request{Dst: "shop/db"}},
		{"shop/db/udp", explain.Request{Dst: "shop/db", Protocol: 17}},
		{"deploy/web", explain.Request{Dst: "deploy/web"}},
		{"deploy/web:80", explain.Request{Dst: "deploy/web", Port: 80}},
		{"shop/deploy/web", explain.Request{Dst: "shop/deploy/web"}},
		{"deploy/shop/web", explain.Request{Dst: "deploy/shop/web"}},
		{"shop/svc/web:dns/udp", explain.Request{Dst: "shop/svc/web", PortName: "dns", Protocol: 17}},
		{"10.0.0.1:9/sctp", explain.Request{Dst: "10.0.0.1", Port: 9, Protocol: 132}},
		{"10.0.0.1", explain.Request{Dst: "10.0.0.1"}},
		{"[fd00::1]:53/udp", explain.Request{Dst: "[fd00::1]", Port: 53, Protocol: 17}},
		{"[fd00::1]", explain.Request{Dst: "[fd00::1]"}},
		{"fd00::1/tcp", explain.Request{Dst: "fd00::1", Protocol: 6}},
		{"10.0.0.1/icmp", explain.Request{Dst: "10.0.0.1", Protocol: 1, ICMPType: 8}},
		{"10.0.0.1/icmp:3:4", explain.Request{Dst: "10.0.0.1", Protocol: 1, ICMPType: 3, ICMPCode: 4}},
		{"10.0.0.1/icmp:3", explain.Request{Dst: "10.0.0.1", Protocol: 1, ICMPType: 3}},
		{"shop/db/icmpv6", explain.Request{Dst: "shop/db", Protocol: 58, ICMPType: 128}},
		{"shop/db/47", explain.Request{Dst: "shop/db", Protocol: 47}},
		{"10.0.0.1/47", explain.Request{Dst: "10.0.0.1", Protocol: 47}},
		{"10.0.0.1/4", explain.Request{Dst: "10.0.0.1", Protocol: 4}},
		{"10.0.0.1/1:3:4", explain.Request{Dst: "10.0.0.1", Protocol: 1, ICMPType: 3, ICMPCode: 4}},
		{"fd00::1/47", explain.Request{Dst: "fd00::1", Protocol: 47}},
		{"[fd00::1]/58:128", explain.Request{Dst: "[fd00::1]", Protocol: 58, ICMPType: 128}},
		{"shop/db/udplite", explain.Request{Dst: "shop/db", Protocol: 136}},
	} {
		got, err := explain.ParseRequest("shop/web", test.dst)
		test.want.Src, test.want.SourcePort = "shop/web", explain.DefaultSourcePort
		if err != nil {
			t.Errorf("%s: %v", test.dst, err)
		} else if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.dst, diff)
		}
	}
	for dst, want := range map[string]string{
		"":                    "one is empty",
		"shop/db:99999":       "neither a number from 1 to 65535 nor the name of a port",
		"shop/db:0":           "neither a number from 1 to 65535 nor the name of a port",
		"shop/db:":            "neither a number from 1 to 65535 nor the name of a port",
		"shop/db:80a!":        "neither a number from 1 to 65535 nor the name of a port",
		"shop/db:80/tpc":      "protocol is tcp",
		"shop/db:80/0":        "protocol is tcp",
		"shop/db:80/256":      "protocol is tcp",
		"shop/db/icmp:300":    "ICMP type",
		"shop/db/icmp:3:x":    "ICMP code",
		"shop/db:80/tcp:8":    "no type and code",
		"shop/db:80/icmp":     "icmp has no ports",
		":80/tcp":             "one is empty",
		"shop/db:80/tcp/more": "protocol is tcp",
		"shop/db/tpc":         "protocol is tcp",
		"10.0.0.0/8":          `DST "10.0.0.0/8" is a network: want one address, as in 10.0.0.0:443/tcp, or a pod, a Service, a node or a workload such as deploy/NAME`,
		"10.0.0.1/32":         `DST "10.0.0.1/32" is a network`,
		"0.0.0.0/0":           `DST "0.0.0.0/0" is a network`,
		"10.0.0.0/8:443":      `DST "10.0.0.0/8:443" is a network`,
		"10.0.0.5/24:443":     `DST "10.0.0.5/24:443" is a network`,
		"10.0.0.0/8/tcp":      `DST "10.0.0.0/8/tcp" is a network`,
		"10.0.0.0/8:443/tcp":  `DST "10.0.0.0/8:443/tcp" is a network`,
		"fd00::/64":           `DST "fd00::/64" is a network: want one address, as in [fd00::]:443/tcp`,
		"[fd00::]/64:443":     `DST "[fd00::]/64:443" is a network`,
	} {
		if r, err := explain.ParseRequest("shop/web", dst); err == nil {
			t.Errorf("%q is read as %+v", dst, r)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q, want one with %q", dst, err, want)
		}
	}
	const want = `SRC "10.0.0.5/24" is a network: want one address, as in 10.0.0.5, or a pod, a node or a workload such as deploy/NAME`
	if r, err := explain.ParseRequest("10.0.0.5/24", "shop/db:80"); err == nil || err.Error() != want {
		t.Errorf("a network as the source: %+v, %v", r, err)
	}
}
