//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Pods of Language: of one policy, of one beside thousands that apply to other pods or to none, of one beside a staged one,
// and of very many in tiers.
const onePod, amongPod, stagedPod, tiersPod = "one", "among", "staged", "tiers"

const benchTiers = 10

// Language measures what many policies, tiers and staged policies cost, as Calico's language has them.
func Language(o Options) (results []report.Result, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	alone, err := openNode(o, "alone", func(*dataplane.Config) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, alone.close()) }()
	among, err := openNode(o, "amongmany", func(*dataplane.Config) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, among.close()) }()
	results, err = o.loadLanguage(alone, among)
	if err != nil {
		return nil, err
	}
	samples, err := o.measureLanguage(alone, among)
	if err != nil {
		return nil, err
	}
	many, here := o.manyPolicies()
	return append(results,
		report.Info("L2", "empty program", "ns", samples.Cost(floor)),
		report.Info("L2", "denied first packet net of the empty program, 1 policy", "ns", samples.Net(onePod, floor)),
		report.Info("L2", "A/A control: 1 policy, again", "ratio", samples.NetRatio(again, onePod, floor)),
		report.Required("L2", fmt.Sprintf("denied first packet, %d policies in %d tiers / 1", o.policiesInTiers(), benchTiers), "ratio", samples.NetRatio(tiersPod, onePod, floor), 1.15),
		report.Required("L3", fmt.Sprintf("denied first packet, %d policies in the cluster of which %d apply on the node / 1", many, here), "ratio", samples.NetRatio(amongPod, onePod, floor), 1.05),
		report.Info("L4", "denied first packet, with a staged policy / without", "ratio", samples.NetRatio(stagedPod, onePod, floor)),
		report.Required("L4", "packet of an established flow, with a staged policy / without", "ratio", samples.NetRatio(stagedPod+" established", onePod+" established", floor), 1.05),
	), nil
}

func (o Options) policiesInTiers() int { return o.ChangeRules[len(o.ChangeRules)/2] }

// manyPolicies are how many policies there are beside one, and how many of them apply to some pod of the node.
func (o Options) manyPolicies() (all, here int) { return last(o.Rules), max(1, last(o.Rules)/100) }

// loadLanguage makes the pods and their policies, and measures that.
func (o Options) loadLanguage(alone, among *node) ([]report.Result, error) {
	deny := rules(1)
	staged := policyFor(stagedPod, rules(10)).(model.PolicyUpdate)
	staged.Key.Kind, staged.Policy.Staged, staged.Policy.Order = model.KindStagedNetworkPolicy, true, 0
	if err := alone.apply(alone.addPod(onePod, 1000, podAddr(0)), policyFor(onePod, deny),
		alone.addPod(stagedPod, 1001, podAddr(1)), policyFor(stagedPod, deny), staged, alone.addPod(tiersPod, 1002, podAddr(2))); err != nil {
		return nil, err
	}
	inTiers := tieredPolicies(o.policiesInTiers())
	first, err := alone.timed(inTiers...)
	if err != nil {
		return nil, err
	}
	middle := inTiers[len(inTiers)/2].(model.PolicyUpdate)
	changed := *middle.Policy
	changed.Ingress = rules(2)[:1]
	again, err := alone.timed(model.PolicyUpdate{Key: middle.Key, Policy: &changed})
	if err != nil {
		return nil, err
	}
	if e, err := alone.entry(stagedPod); err != nil || e.Flags&bpf.EPStagedIngress == 0 {
		return nil, fmt.Errorf("the staged policy is not asked: %+v, %w", e, err)
	}
	c, err := alone.slot(tiersPod)
	if err != nil {
		return nil, err
	}
	if int(c.Shape.Rules) < o.policiesInTiers() {
		return nil, fmt.Errorf("the policies in tiers are in the kernel as %+v", c.Shape)
	}
	size := len(c.L4)*int(unsafe.Sizeof(bpf.L4Page{})) + len(c.Outcomes)*int(unsafe.Sizeof(bpf.Outcome{})) +
		(len(c.Rows)+len(c.RowBlk)+len(c.Cells))*int(unsafe.Sizeof(bpf.CellBlock{}))

	many, here := o.manyPolicies()
	updates := []model.Update{among.addPod(amongPod, 1000, podAddr(0)), among.addPod("other", 1001, podAddr(1)), policyFor(amongPod, deny)}
	if err := among.apply(updates...); err != nil {
		return nil, err
	}
	took, err := among.timed(otherPolicies(many, here)...)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d policies in %d tiers on one pod", o.policiesInTiers(), benchTiers)
	ms := func(d time.Duration) paired.Estimate { return report.Exact(float64(d.Microseconds()) / 1000) }
	return []report.Result{
		report.Info("L1", name+", from the updates to the last kernel write", "ms", ms(first)),
		report.Info("L1", name+", one of them changes", "ms", ms(again)),
		report.Info("L1", name+", decision table", "bytes", report.Exact(float64(size))),
		report.Info("L3", fmt.Sprintf("%d policies come of which %d apply on the node", many, here), "ms", ms(took)),
	}, nil
}

// measureLanguage measures packets of each pod.
func (o Options) measureLanguage(alone, among *node) (paired.Samples, error) {
	empty, err := alone.program(bpf.MargayProgEmpty)
	if err != nil {
		return paired.Samples{}, err
	}
	syn := func(i int) []byte {
		return testutil.Packet{Src: stranger, Dst: podAddr(i), L4: testutil.TCP{SrcPort: 40000, DstPort: deniedPort, Flags: testutil.SYN}}.Bytes()
	}
	cases := []paired.Case{{Name: floor, Ops: o.Repeat, Run: o.repeat(alone, empty, nil, syn(0), pass)}}
	for _, of := range []struct {
		n     *node
		pod   string
		i     int
		names []string
	}{{alone, onePod, 0, []string{onePod, again}}, {alone, stagedPod, 1, []string{stagedPod}}, {alone, tiersPod, 2, []string{tiersPod}}, {among, amongPod, 0, []string{amongPod}}} {
		toPod, err := of.n.program(bpf.MargayProgToPod)
		if err != nil {
			return paired.Samples{}, err
		}
		e, err := of.n.entry(of.pod)
		if err != nil {
			return paired.Samples{}, err
		}
		for _, name := range of.names {
			cases = append(cases, paired.Case{Name: name, Ops: o.Repeat, Run: o.repeat(of.n, toPod, &e, syn(of.i), drop)})
		}
	}
	for i, pod := range []string{onePod, stagedPod} {
		established, err := o.established(alone, pod, i, uint32(i+1))
		if err != nil {
			return paired.Samples{}, err
		}
		c := established[1]
		c.Name = pod + " established"
		cases = append(cases, c)
	}
	return paired.Measure(cases, o.Rounds)
}

// tieredPolicies are n policies of one pod with a rule each, in tiers that pass on what they do not decide. Only the last
// one says something of the stranger: it denies.
func tieredPolicies(n int) []model.Update {
	var updates []model.Update
	for i := range benchTiers {
		updates = append(updates, model.TierUpdate{Name: fmt.Sprintf("tier-%d", i), Tier: &model.Tier{Order: float64(i), Default: model.Pass}})
	}
	for i, rule := range rules(n) {
		rule.Index = 0
		updates = append(updates, model.PolicyUpdate{
			Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprintf("tiered-%d", i)},
			Policy: &model.Policy{Tier: fmt.Sprintf("tier-%d", i*benchTiers/n), Order: float64(i), Selector: selector.Equal("app", tiersPod),
				AppliesIngress: true, Ingress: []model.Rule{rule}},
		})
	}
	return updates
}

// otherPolicies are policies of another pod of the node, here of them, and of none.
func otherPolicies(all, here int) []model.Update {
	var updates []model.Update
	for i := range all {
		u := policyFor(fmt.Sprintf("elsewhere-%d", i), rules(5)).(model.PolicyUpdate)
		u.Key.Name = fmt.Sprintf("other-%d", i)
		if i < here {
			u.Policy.Selector = selector.Equal("app", "other")
		}
		updates = append(updates, u)
	}
	return updates
}
