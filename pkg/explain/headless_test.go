package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/explain"
)

// headless is the Service shop/pg of two pods without a cluster address. Its port 5432 has the number 6432 at the pods, and policy allows
// 5432 and ping at one of them. The Service shop/bare names no port, and shop/none has no backends.
const headless = `
apiVersion: v1
kind: Service
metadata: {name: pg, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None], ports: [{name: sql, port: 5432, targetPort: 6432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: pg-1, namespace: shop, labels: {kubernetes.io/service-name: pg}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.4]}, {addresses: [10.1.0.5]}]
ports: [{name: sql, port: 6432}]
---
apiVersion: v1
kind: Service
metadata: {name: bare, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: bare-1, namespace: shop, labels: {kubernetes.io/service-name: bare}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.4]}]
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None], ports: [{port: 1}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: none-1, namespace: shop, labels: {kubernetes.io/service-name: none}}
addressType: IPv4
endpoints: []
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {statefulset.kubernetes.io/pod-name: db-1}}
  ingress: [{ports: [{port: 5432}]}]
---
`

// Nothing translates the port of a connection to a headless Service, and kube-proxy puts no node's address in the place of a client's.
func TestOfAHeadlessServiceThePodsAreAskedAbout(t *testing.T) {
	s := stateOf(t, headless+workloads())
	for _, test := range []struct {
		name, src, dst string
		want           []string
		note           string // the end of it
	}{
		{"number", "shop/log-vwxyz", "svc/shop/pg:5432", []string{"allow: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4:5432 tcp", "allow 10.1.0.6 -> 10.1.0.5:5432 tcp"}, "no port is translated; its ports are sql (6432/tcp)"},
		{"number of the pods", "shop/log-vwxyz", "pg.shop.svc:6432", []string{"mixed: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4:6432 tcp", "deny 10.1.0.6 -> 10.1.0.5:6432 tcp"}, "no port is translated"},
		{"number of no port", "shop/log-vwxyz", "shop/pg:9/udp", []string{"mixed: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4:9 udp", "deny 10.1.0.6 -> 10.1.0.5:9 udp"}, "its ports are sql (6432/tcp)"},
		{"name", "shop/log-vwxyz", "shop/pg:sql", []string{"mixed: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4:6432 tcp", "deny 10.1.0.6 -> 10.1.0.5:6432 tcp"}, "no port is translated"},
		{"every port", "shop/log-vwxyz", "shop/pg", []string{"mixed: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4:6432 tcp", "deny 10.1.0.6 -> 10.1.0.5:6432 tcp"}, "no port is translated"},
		{"ping", "shop/log-vwxyz", "shop/pg/icmp", []string{"mixed: shop/log-vwxyz to Service shop/pg",
			"allow 10.1.0.6 -> 10.1.0.4 icmp type 8 code 0", "deny 10.1.0.6 -> 10.1.0.5 icmp type 8 code 0"}, "no port is translated"},
		{"from outside", "203.0.113.1", "shop/bare:80", []string{"allow 203.0.113.1 -> 10.1.0.4:80 tcp"}, "only the destination's ingress is judged"},
		{"every port, where none is named", "shop/log-vwxyz", "shop/bare", []string{"allow "}, "no port is translated"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := explainIn(t, s, test.src, test.dst)
			if diff := cmp.Diff(test.want, lines(e)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.HasSuffix(e.Note, test.note) || strings.Contains(e.Note, "kube-proxy") || e.Caveat != "" && len(e.Ports) == 0 {
				t.Errorf("note %q, caveat %q; want a note that ends with %q", e.Note, e.Caveat, test.note)
			}
		})
	}
	for dst, want := range map[string]string{
		"svc/shop/none:1": "the Service shop/none has no backends, so connections to it fail whatever policy says",
		"shop/pg:web":     `the Service shop/pg has no port "web"; its ports are sql (6432/tcp)`,
		"shop/pg:sql/udp": `the Service shop/pg has no port "sql" of protocol udp; its ports are sql (6432/tcp)`,
		"shop/bare:sql":   `the Service shop/bare has no port "sql"; its backends name none`,
	} {
		r, err := explain.ParseRequest("shop/log-vwxyz", dst)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := s.Explain(r); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v, want %s", dst, e, err, want)
		}
	}
}
