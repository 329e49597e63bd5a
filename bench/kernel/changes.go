//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Changes measures P8, P9 and P11 on one node. P8 and P9 are by the clock on the wall: what counts is when policy is
// enforced.
func Changes(o Options) (results []report.Result, err error) {
	n, err := openNode(o, "changes", func(*dataplane.Config) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	for i, count := range o.ChangeRules {
		if err := n.apply(n.addPod(podName(count), uint32(1000+i), podAddr(i)), policyFor(podName(count), rules(count))); err != nil {
			return nil, err
		}
	}
	for _, do := range []func(*node) ([]report.Result, error){o.tableBytes, o.ruleChanges, o.joins} {
		r, err := do(n)
		if err != nil {
			return nil, err
		}
		results = append(results, r...)
	}
	return results, nil
}

// ruleChanges measures P8: from an update of a policy, one of whose rules is another, to the last kernel write.
func (o Options) ruleChanges(n *node) ([]report.Result, error) {
	must := map[int]float64{100: 5, 10000: 50}
	var cases []paired.Case
	for _, count := range o.ChangeRules {
		turn := 0
		cases = append(cases, paired.Case{Name: podName(count), Ops: 1, Run: func(int) (time.Duration, error) {
			turn++
			list := rules(count)
			port := uint16(30000 + turn)
			list[count/2].Destination.Ports = []model.PortRange{{Lo: port, Hi: port}}
			before, err := n.entry(podName(count))
			if err != nil {
				return 0, err
			}
			took, err := n.timed(policyFor(podName(count), list))
			if err != nil {
				return 0, err
			}
			after, err := n.entry(podName(count))
			if err == nil && after.Ingress == before.Ingress {
				err = errors.New("the change was not published")
			}
			return took, err
		}})
	}
	samples, err := paired.Measure(cases, o.Rounds)
	if err != nil {
		return nil, err
	}
	var results []report.Result
	for _, count := range o.ChangeRules {
		name := fmt.Sprintf("one rule of %d changes, from the update to the last kernel write", count)
		e := milliseconds(samples.Cost(podName(count)))
		if most, ok := must[count]; ok {
			results = append(results, report.Required("P8", name, "ms", e, most))
		} else {
			results = append(results, report.Info("P8", name, "ms", e))
		}
	}
	return results, nil
}

func milliseconds(e paired.Estimate) paired.Estimate {
	return paired.Estimate{Median: e.Median / 1e6, Low: e.Low / 1e6, High: e.High / 1e6}
}

// joins measures P9: a pod elsewhere gets an address that is in a set of few, and of many.
func (o Options) joins(n *node) ([]report.Result, error) {
	var cases []paired.Case
	for i, members := range []int{o.FewMembers, o.ManyMembers} {
		name := fmt.Sprintf("set%d", members)
		web := selector.Equal("group", name)
		updates := []model.Update{n.addPod(name, uint32(2000+i), podAddr(100+i)), policyFor(name, []model.Rule{
			{Action: model.Allow, Source: model.Entity{Selector: web}}})}
		for k := range members {
			updates = append(updates, remote(name, i, k))
		}
		if err := n.apply(updates...); err != nil {
			return nil, err
		}
		next := members
		cases = append(cases, paired.Case{Name: name, Ops: 1, Run: func(int) (time.Duration, error) {
			next++
			took, err := n.timed(remote(name, i, next))
			if err != nil {
				return 0, err
			}
			return took, n.isMember(memberAddr(i, next), memberAddr(i, 0))
		}})
	}
	samples, err := paired.Measure(cases, o.Rounds)
	if err != nil {
		return nil, err
	}
	few, many := cases[0].Name, cases[1].Name
	return []report.Result{
		report.Info("P9", fmt.Sprintf("a member joins a set of %d, from the update to the last kernel write", o.FewMembers), "ms", milliseconds(samples.Cost(few))),
		report.Info("P9", fmt.Sprintf("a member joins a set of %d, from the update to the last kernel write", o.ManyMembers), "ms", milliseconds(samples.Cost(many))),
		report.Required("P9", fmt.Sprintf("a member joins a set of %d / of %d", o.ManyMembers, o.FewMembers), "ratio", samples.Ratio(many, few), 1.3),
	}, nil
}

func memberAddr(set, k int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(30 + set), byte(k >> 16), byte(k >> 8), byte(k)})
}

// remote is a pod of another node.
func remote(group string, set, k int) model.Update {
	return model.EndpointUpdate{ID: model.WorkloadID(group, fmt.Sprint(k)), Endpoint: &model.Endpoint{
		Node: "elsewhere", Addrs: []netip.Addr{memberAddr(set, k)}, Labels: map[string]string{"group": group}}}
}

// isMember checks that the kernel knows an address as it knows another.
func (n *node) isMember(addr, other netip.Addr) error {
	addresses := n.dp.Maps().Addresses
	got, isKnown, err := addresses.Lookup(addr)
	want, _, err2 := addresses.Lookup(other)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if !isKnown || got != want {
		return fmt.Errorf("%s is known as %+v, other members as %+v", addr, got, want)
	}
	return nil
}

// tableBytes measures P11: what the kernel holds of a policy, the ordered match table apart, and what one more endpoint
// of the same policy adds.
func (o Options) tableBytes(n *node) ([]report.Result, error) {
	must := map[int]float64{100: 96 << 10, 10000: 512 << 10}
	var results []report.Result
	for _, count := range o.ChangeRules {
		c, err := n.slot(podName(count))
		if err != nil {
			return nil, err
		}
		size := report.Exact(float64(len(c.L4)*int(unsafe.Sizeof(bpf.L4Page{})) + len(c.Outcomes)*int(unsafe.Sizeof(bpf.Outcome{})) +
			(len(c.Rows)+len(c.RowBlk)+len(c.Cells))*int(unsafe.Sizeof(bpf.CellBlock{}))))
		name := fmt.Sprintf("decision table of %d rules, %d prefixes", count, min(count, nets))
		if most, ok := must[count]; ok {
			results = append(results, report.Required("P11", name, "bytes", size, most))
		} else {
			results = append(results, report.Info("P11", name, "bytes", size))
		}
	}
	few := o.ChangeRules[0]
	if err := n.apply(n.addTwin(podName(few))); err != nil {
		return nil, err
	}
	first, err := n.entry(podName(few))
	if err != nil {
		return nil, err
	}
	second, err := n.entry("twin")
	if err != nil {
		return nil, err
	}
	if uint32(first.Ingress>>32) != uint32(second.Ingress>>32) || first.Egress>>32 != second.Egress>>32 {
		return nil, fmt.Errorf("endpoints of the same policy do not share it: %x and %x", first.Ingress, second.Ingress)
	}
	return append(results, report.Required("P11", "one more endpoint of the same policy", "bytes",
		report.Exact(float64(unsafe.Sizeof(bpf.Endpoint{}))), 64)), nil
}

// addTwin makes another pod with the labels of one that is there.
func (n *node) addTwin(of string) model.Update {
	u := n.addPod("twin", 3000, podAddr(200)).(model.EndpointUpdate)
	u.Endpoint.Labels = map[string]string{"app": of}
	return u
}
