package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/model"
)

// refusal is what the API server does not take although a folder of manifests may hold it.
type refusal struct {
	object string // kind namespace/name
	says   string // a part of the API server's answer
	// open says that no policy is in force then, so that everything passes, whatever the case says of a folder of
	// manifests, where a part of the object counts.
	open bool
}

// refused are the cases whose policy the API server refuses, so that no agent ever gets to see it.
var refused = map[string]refusal{
	// D-7 is about objects that came past validation. Here validation refuses them as a whole.
	"cnp-never-valid":               {"ClusterNetworkPolicy /guard", "spec.tier: Unsupported value", false},
	"cnp-update-rejected":           {"ClusterNetworkPolicy /guard", "spec.priority: Invalid value", false},
	"knp-except-unparsable":         {"NetworkPolicy shop/web", "ipBlock.except[0]: Invalid value", true},
	"knp-except-two-one-unparsable": {"NetworkPolicy shop/web", "ipBlock.except[1]: Invalid value", true},
	"knp-ipblock-unparsable":        {"NetworkPolicy shop/web", "ipBlock.cidr: Invalid value", true},
	"knp-never-valid":               {"NetworkPolicy shop/db", "policyTypes[0]: Unsupported value", false},
	"knp-update-rejected":           {"NetworkPolicy shop/db", "not a valid selector operator", false},
}

// annotated are the cases about agents that read no annotations (--pod-ips-from-annotations none, the default). The agents
// here read those of Calico, which the stand-in for the kubelet writes. test/e2e plays these cases.
var annotated = []string{"pod-annotation-gives-no-address", "pod-deleted-keeps-address"}

// TestCorpus is the corpus on a real cluster: every case that can be played there goes through the API server (of those with
// Calico's kinds, unless there is time, one in three), its pods run, and each of its checks is tried from the real source to
// the real destination, directly and by way of a Service of the destination's own. What is denied is tried once more without
// policy.
func TestCorpus(t *testing.T) {
	cases, err := corpus.Load("../../corpus")
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c corpus.Case) bool { return c.Unplayed(true) != "" })
	for name := range refused {
		if !slices.ContainsFunc(cases, func(c corpus.Case) bool { return c.Name == name }) {
			t.Errorf("there is no case %s any more", name)
		}
	}
	for _, name := range annotated {
		before := len(cases)
		if cases = slices.DeleteFunc(cases, func(c corpus.Case) bool { return c.Name == name }); len(cases) == before {
			t.Errorf("there is no case %s any more", name)
		}
	}
	s := newCorpusStage(t)
	var played, checks int
	for i, mode := range []string{"iptables", "nftables"} {
		share := cases
		if !long() {
			share = some(cases, i)
		}
		if i > 0 {
			s.removePods(func(model.EndpointID, *stagedPod) bool { return false }) // with what their connections leave
			s.removeCalicoKinds(s.calicoGroup)
		}
		s.installCalicoKinds([]string{calicoCRD, calicoV3}[i])
		s.setProxies(mode)
		t.Run(mode, func(t *testing.T) {
			for _, group := range corpus.SameButForPolicy(share) {
				n := s.playGroup(t, group)
				played, checks = played+len(group), checks+n
			}
		})
	}
	t.Logf("%d cases, %d checks", played, checks)
	if played < 150 {
		t.Errorf("%d cases, want at least 150", played)
	}
	if err := s.plane.Err(); err != nil {
		t.Error(err)
	}
}

// some is every second of the cases of Kubernetes objects alone, and every sixth of the others.
func some(cases []corpus.Case, of int) (out []corpus.Case) {
	var kubernetes, others int
	for _, c := range cases {
		count, every := &kubernetes, 2
		if c.Kubernetes == nil {
			count, every = &others, 6
		}
		if *count%every == of {
			out = append(out, c)
		}
		*count++
	}
	return out
}

// playGroup plays cases that differ in policies only, and returns how many checks they have.
func (s *corpusStage) playGroup(t *testing.T, group []corpus.Case) (checks int) {
	var all, denied []corpus.Check
	for i := range group {
		// Linux' conntrack does not know UDP-Lite and finds it invalid; kube-proxy in mode iptables drops such packets. BPF delivers
		// them between pods of a node without asking.
		if testcluster.IPTables() {
			group[i].Checks = slices.DeleteFunc(slices.Clone(group[i].Checks), func(c corpus.Check) bool { return c.Packet.Protocol == model.ProtoUDPLite })
		}
	}
	for _, c := range group {
		all = append(all, c.Checks...)
		if !refused[c.Name].open {
			denied = append(denied, corpus.Denied(c.Checks)...)
		}
	}
	if !t.Run("cluster of "+group[0].Name, func(t *testing.T) { s.place(t, group[0], all) }) {
		return 0
	}
	for _, c := range group {
		t.Run(c.Name, func(t *testing.T) { s.play(t, c) })
	}
	t.Run("without policy of "+group[0].Name, func(t *testing.T) {
		defer s.in(t)()
		s.removePolicies(nil)
		s.settle()
		for some := range slices.Chunk(denied, 40) {
			s.try(some, func(corpus.Check) bool { return true })
		}
	})
	return len(all)
}

// play puts the case's policies in force and tries its checks.
func (s *corpusStage) play(t *testing.T, c corpus.Case) {
	defer s.in(t)()
	refusal, some := refused[c.Name]
	var policies []corpus.Document
	for _, d := range c.Documents {
		if d.IsPolicy() {
			policies = append(policies, d)
		}
	}
	if some || len(c.Problems) > 0 { // no earlier case may have left a policy of the name
		s.removePolicies(nil)
	} else {
		s.removePolicies(policies)
	}
	refusals := 0
	for _, d := range policies {
		err := s.put(d)
		switch {
		case err == nil:
		case some && refusal.object == object(d) && strings.Contains(err.Error(), refusal.says):
			refusals++
		default:
			t.Fatal(err)
		}
	}
	if some && refusals != 1 {
		t.Errorf("the API server refused %s %d times, want once: %s", refusal.object, refusals, refusal.says)
	}
	s.settle()
	s.try(c.Checks, func(k corpus.Check) bool { return k.Allow || refusal.open })
}

func object(d corpus.Document) string {
	if d.OfCalico() {
		return fmt.Sprintf("%s.projectcalico.org %s/%s", d.Kind, d.Namespace, d.Name)
	}
	return fmt.Sprintf("%s %s/%s", d.Kind, d.Namespace, d.Name)
}

// try makes all checks' packets real and demands that those get through that want says.
func (s *corpusStage) try(checks []corpus.Check, want func(corpus.Check) bool) {
	s.t.Helper()
	for _, err := range s.traffic.Try(checks, want) {
		s.t.Error(err)
	}
}

// corpusPods are the ranges of the corpus' pods: what kube-proxy does not masquerade.
var corpusPods = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00:10::/32")}
