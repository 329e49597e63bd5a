//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/bench/linear"
	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/pkg/lab"
)

// Names of the configurations that the dataplanes are compared with.
const (
	tracked = "conntrack only"
	proxy   = "a node with kube-proxy's rules"
)

// backends of iptables that there are measurements of.
var backends = []string{"legacy", "nft"}

// planeName is a dataplane with a policy: "iptables mode, legacy, 10 port rules".
func planeName(plane string, of shape) string {
	kind, end := "port", ""
	if of.sets {
		kind = "set"
	}
	if of.oneEnd {
		end = ", one end"
	}
	return fmt.Sprintf("%s, %d %s rules%s", plane, of.rules, kind, end)
}

const bpfPlane = "BPF, shortcut off"

func modePlane(backend string) string   { return "iptables mode, " + backend }
func linearPlane(backend string) string { return "linear rules, " + backend }

// onProxy is a configuration of a node that also has kube-proxy's rules.
func onProxy(name string) string { return proxy + ", and " + name }

// dataplaneConfigs are a node without anything, ones with conntrack alone and with kube-proxy's rules, and each dataplane with
// port rules and set rules.
func dataplaneConfigs(o Options) []config {
	list := []config{{name: bare, share: 1}, {name: tracked, share: 1, setUp: track}, {name: proxy, share: 1, setUp: proxied20}}
	for _, n := range o.Rules {
		list = append(list, planes(shape{rules: n})...)
	}
	for _, n := range o.SetRules {
		list = append(list, planes(shape{rules: n, sets: true})...)
	}
	for _, n := range o.Rules[1:] { // P19
		of := shape{rules: n, oneEnd: true}
		list = append(list, enforcedBy(planeName(modePlane("legacy"), of), enforcement{shape: of, backend: "legacy"}), linearConfig("legacy", of))
	}
	if o.Few {
		return append(list, config{name: control, share: 1})
	}
	for _, c := range planes(shape{rules: o.Rules[0]}) {
		enforce := c.setUp
		c.name, c.setUp = onProxy(c.name), func(ctx context.Context, s *site) error {
			if err := proxied20(ctx, s); err != nil {
				return err
			}
			return enforce(ctx, s)
		}
		list = append(list, c)
	}
	return append(list, config{name: control, share: 1})
}

// planes are all dataplanes with a policy of that shape.
func planes(of shape) []config {
	list := []config{enforcedBy(planeName(bpfPlane, of), enforcement{shape: of})}
	for _, b := range backends {
		list = append(list, enforcedBy(planeName(modePlane(b), of), enforcement{shape: of, backend: b}))
	}
	for _, b := range backends {
		if b == "legacy" || !of.sets {
			list = append(list, linearConfig(b, of))
		}
	}
	return list
}

// track has the kernel track connections, by a rule that no packet matches; more is not done to them.
func track(ctx context.Context, s *site) error {
	const rule = "*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n"
	_, err := s.seats[0].node.Run(ctx, rule, "iptables-legacy-restore", "--noflush")
	return err
}

func proxied20(ctx context.Context, s *site) error { return addProxy(ctx, s.seats[0].node) }

// linearConfig has rules as enforcers of the usual kind write them.
func linearConfig(backend string, of shape) config {
	return config{name: planeName(linearPlane(backend), of), share: max(1, of.rules/500), denies: true,
		setUp: func(ctx context.Context, s *site) error {
			if of.sets {
				if _, err := s.seats[0].node.Run(ctx, sets(of.rules), "ipset", "restore"); err != nil {
					return err
				}
			}
			_, err := s.seats[0].node.Run(ctx, linear.Rules(linearPods(s, of)), "iptables-"+backend+"-restore", "--noflush")
			if err != nil {
				return err
			}
			return s.countLinear(ctx, backend, of)
		}}
}

// linearPods are the pods with the policies that policies writes as objects.
func linearPods(s *site, of shape) []linear.Pod {
	var lists [][]linear.Rule
	for part := range slices.Chunk(ruleList(of.rules-1), policyRules) {
		var list []linear.Rule
		for _, r := range part {
			rule := linear.Rule{Net: r.net, Port: r.port}
			if of.sets {
				rule.Set = setName(r.number)
			}
			list = append(list, rule)
		}
		lists = append(lists, list)
	}
	host := func(p *lab.Pod) netip.Prefix { return netip.PrefixFrom(p.Addr4(), 32) }
	client := linear.Pod{Iface: s.client.Iface(), Egress: lists, To: host(s.server), Port: servedPort}
	if of.oneEnd {
		client.Egress = nil
	}
	return []linear.Pod{client, {Iface: s.server.Iface(), Ingress: lists, From: host(s.client), Port: servedPort}}
}

// countLinear checks that the kernel has the rules: two for each of policy.
func (s *site) countLinear(ctx context.Context, backend string, of shape) error {
	out, err := s.seats[0].node.Run(ctx, "", "iptables-"+backend+"-save", "-t", "filter")
	if err != nil {
		return err
	}
	ends := 2
	if of.oneEnd {
		ends = 1
	}
	n := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "-A cali-pi-") || strings.HasPrefix(line, "-A cali-po-") {
			n++
		}
	}
	if want := 2 * ends * (of.rules + 1); n != want {
		return fmt.Errorf("the chains of policies have %d rules, want %d", n, want)
	}
	return nil
}

// MeasureDataplanes measures P16 to P19: the dataplanes beside each other.
func MeasureDataplanes(ctx context.Context, o Options) ([]report.Result, error) {
	list := dataplaneConfigs(o)
	memory := remember(list)
	all, err := measureAll(ctx, o, list, control, bare)
	if err != nil {
		return nil, err
	}
	udp, request, connect := all[0], all[1], all[2]
	results := compared(o, request, connect)
	for i, w := range workloads(o) {
		results = append(results, report.Info("A/A", w.name+": bare again / bare", "ratio", all[i].Ratio(control, bare)))
	}
	for _, w := range []struct {
		id, name, base string
		s              paired.Samples
	}{{"connect-request-close", "connect-request-close", bare, connect}, {"request-response", "request-response", tracked, request},
		{"UDP packet", "established UDP packet", tracked, udp}} {
		results = append(results, report.Info(w.id+", ns", w.base, "ns", w.s.Cost(w.base)))
		for _, c := range list {
			if c.name != w.base && c.name != control {
				results = append(results, report.Info(w.id+" / "+w.base, c.name, "ratio", w.s.Ratio(c.name, w.base)))
			}
		}
	}
	return append(results, memory()...), nil
}

// compared are the results that something is required of.
func compared(o Options, request, connect paired.Samples) []report.Result {
	var results []report.Result
	few, many := o.Rules[0], o.Rules[len(o.Rules)-1]
	for _, b := range backends {
		name := func(n int) string { return planeName(modePlane(b), shape{rules: n}) }
		ratio := func(id, what string, s paired.Samples, a, of string, must float64) {
			results = append(results, report.Required(id, fmt.Sprintf("%s: %s / %s", what, a, of), "ratio", s.Ratio(a, of), must))
		}
		ratio("P16", "connect-request-close", connect, name(few), bare, 1.40)
		ratio("P16", "connect-request-close", connect, name(many), bare, 1.45)
		ratio("P17", "connect-request-close", connect, name(many), name(few), 1.06)
		ratio("P18", "request-response", request, name(few), tracked, 1.12)
		ratio("P18", "request-response", request, name(many), tracked, 1.12)
	}
	most := map[int]float64{1000: 0.60, 10000: 0.13}
	for _, n := range o.Rules[1:] {
		of := shape{rules: n, oneEnd: true}
		a, b := planeName(modePlane("legacy"), of), planeName(linearPlane("legacy"), of)
		what := fmt.Sprintf("connect-request-close: %s / %s", a, b)
		if must, ok := most[n]; ok {
			results = append(results, report.Required("P19", what, "ratio", connect.Ratio(a, b), must))
		} else {
			results = append(results, report.Info("P19", what, "ratio", connect.Ratio(a, b)))
		}
		of.oneEnd = false
		a, b = planeName(modePlane("legacy"), of), planeName(linearPlane("legacy"), of)
		results = append(results, report.Info("P19", fmt.Sprintf("connect-request-close: %s / %s", a, b), "ratio", connect.Ratio(a, b)))
	}
	return results
}

// remember has each configuration with an agent note how much memory the agent takes. The function it returns has the medians.
func remember(list []config) func() []report.Result {
	samples := map[string][]float64{}
	for i := range list {
		c := &list[i]
		verify := c.verify
		if verify == nil {
			continue
		}
		c.verify = func(s *site) error {
			return errors.Join(verify(s), s.each(func(at *seat) error {
				samples[s.name] = append(samples[s.name], float64(at.agent.rss)/1e6)
				return nil
			}))
		}
	}
	return func() []report.Result {
		var results []report.Result
		for _, c := range list {
			if m := samples[c.name]; len(m) > 0 {
				e := paired.Estimate{Median: paired.Median(m), Low: slices.Min(m), High: slices.Max(m)}
				results = append(results, report.Info("agent's resident memory once policy is enforced", c.name, "MB", e))
			}
		}
		return results
	}
}
