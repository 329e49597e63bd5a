//go:build linux

package traffic

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/pkg/lab"
)

// Names of the configurations with two nodes. A node as it is in life has kube-proxy's rules, and so connection
// tracking; without them the kernel forwards with no hook of netfilter at all.
const (
	twoBare       = "two nodes, bare"
	twoProxy      = "two nodes, kube-proxy's rules, no policy"
	twoProxyAgain = "two nodes, kube-proxy's rules, no policy, again"
	twoBPF        = "two nodes, kube-proxy's rules and BPF, 10 rules"
	twoHooks      = "two nodes, kube-proxy's rules and empty programs on the hooks"
	twoBPFAlone   = "two nodes, BPF, 10 rules, no kube-proxy"
	twoBPFEarly   = "two nodes, kube-proxy's rules and BPF, 10 rules, with the program at PRE_ROUTING"
	twoBPFNoHooks = "two nodes, kube-proxy's rules and BPF, 10 rules, without the netfilter programs"
)

// mostBetween are what P1, P2 and P4 may cost between two nodes, compared to nodes with kube-proxy's rules and no policy.
var mostBetween = map[string]float64{"P1": 1.05, "P2": 1.05, "P4": 1.08}

func nodesConfigs() []config {
	proxy := func(ctx context.Context, s *site) error {
		return s.each(func(at *seat) error { return addProxy(ctx, at.node) })
	}
	both := func(c config) config {
		enforce := c.setUp
		c.setUp = func(ctx context.Context, s *site) error {
			if err := proxy(ctx, s); err != nil {
				return err
			}
			return enforce(ctx, s)
		}
		return c
	}
	list := []config{
		{name: twoBare, share: 1},
		{name: twoProxy, share: 1, setUp: proxy},
		both(emptyConfig(twoHooks, true)),
		both(margayConfig(twoBPF, 10, false)),
		both(withEarly(twoBPFEarly, 10)),
		both(withoutHooks(twoBPFNoHooks, 10)),
		margayConfig(twoBPFAlone, 10, false),
		{name: twoProxyAgain, share: 1, setUp: proxy},
	}
	for i := range list {
		list[i].apart = true
	}
	return list
}

// MeasureNodes measures P1, P2 and P4 between pods of two nodes.
func MeasureNodes(ctx context.Context, o Options) ([]report.Result, error) {
	all, err := measureAll(ctx, o, nodesConfigs(), twoProxyAgain, twoProxy)
	if err != nil {
		return nil, err
	}
	var results []report.Result
	for i, w := range workloads(o) {
		results = append(results, between(w.id, w.name, all[i])...)
	}
	return results, nil
}

// between are the ratios of every configuration with two nodes to nodes as they are in life, and to bare ones.
func between(id, what string, s paired.Samples) []report.Result {
	aa := s.Ratio(twoProxyAgain, twoProxy)
	pass := math.Abs(aa.Median-1) <= off
	results := []report.Result{
		report.Info(id, what+": "+twoBare, "ns", s.Cost(twoBare)),
		report.Info(id, what+": "+twoProxy, "ns", s.Cost(twoProxy)),
		{ID: id, Config: what + ": two nodes, A/A control", Unit: "ratio", Median: aa.Median, Low: aa.Low, High: aa.High,
			Must: 1 + off, Pass: &pass},
		report.Required(id, what+": "+twoBPF+" / the same without BPF", "ratio", s.Ratio(twoBPF, twoProxy), mostBetween[id]),
	}
	for _, c := range []struct{ name, of string }{
		{twoBPF, twoBare}, {twoBPFAlone, twoBare}, {twoProxy, twoBare}, {twoHooks, twoProxy}, {twoBPFNoHooks, twoProxy}, {twoBPFEarly, twoBPF}, {twoBPF, twoHooks},
	} {
		results = append(results, report.Info(id, what+": "+c.name+" / "+c.of, "ratio", s.Ratio(c.name, c.of)))
	}
	return results
}

// proxied is how many Services a node has.
const proxied = 20

// addProxy gives the node what kube-proxy writes in its iptables mode: Services to be translated, masquerade, and the
// rules of its filter table.
func addProxy(ctx context.Context, n *lab.Node) error {
	for i := range byte(proxied) {
		err := n.SetService(lab.Service{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, i + 1}), 80), Protocol: "tcp",
			Backends: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 65, 200, i + 1}), 8080)},
		})
		if err != nil {
			return err
		}
	}
	const filter = `*filter
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`
	out, err := n.Run(ctx, filter, "iptables-restore", "--noflush", "--wait", "5")
	if err != nil {
		return fmt.Errorf("write kube-proxy's filter rules on %s: %w: %s", n.Name(), err, strings.TrimSpace(out))
	}
	return nil
}
