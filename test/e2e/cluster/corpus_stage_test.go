package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/corpus/sockets"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

// corpusStage is where the cases of the corpus are played one after the other: a cluster whose nodes have the addresses
// of the corpus' cluster shop, and one outside host that is everybody else. What a case needs and an earlier one has left
// is kept.
type corpusStage struct {
	*cluster
	world    *lab.External
	others   map[netip.Addr]bool // addresses of world
	pods     map[model.EndpointID]*stagedPod
	services map[model.EndpointID]*stagedService
	policies []corpus.Document
	accounts []corpus.Document // service accounts that a case has changed
	traffic  sockets.Traffic
}

func newCorpusStage(t *testing.T) *corpusStage {
	t.Helper()
	c := newCluster(t, options{
		nodeNames: []string{"n1", "n2"},
		nodeAddrs: map[string][]netip.Addr{ // as in cluster/shop.yaml
			"n1": {netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:192::1")},
			"n2": {netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:192::2")},
		},
		podRanges: corpusPods,
		flags:     []string{"--discovery-every", "1s"},
	})
	c.installClusterPolicies()
	s := &corpusStage{
		cluster: c, world: c.external("world"), others: map[netip.Addr]bool{},
		pods: map[model.EndpointID]*stagedPod{}, services: map[model.EndpointID]*stagedService{},
	}
	s.traffic = sockets.Traffic{Host: s.host, World: s.world.Host, Service: s.clusterIP}
	return s
}

// in makes failures those of a part of the test until it is taken back.
func (c *cluster) in(t testing.TB) (back func()) {
	before := c.t
	c.t = t
	return func() { c.t = before }
}

// place makes the cluster what the case says but for policy, and ready for the checks.
func (s *corpusStage) place(t *testing.T, c corpus.Case, checks []corpus.Check) {
	defer s.in(t)()
	s.resetAccounts()
	for _, d := range c.Documents {
		switch d.Kind {
		case "Namespace":
			s.apply(string(d.Text))
			s.awaitAccount(d.Name)
		case "ServiceAccount":
			s.apply(string(d.Text))
			s.accounts = append(s.accounts, d)
		case "Node":
			s.sameNode(c, d.Name)
		case "Pod":
		default:
			if !d.IsPolicy() {
				t.Fatalf("%s: the stage has no %s", c.Name, d.Kind)
			}
		}
	}
	others := s.outside(c, checks)
	for a := range s.others {
		if !others[a] {
			s.must(s.world.RemoveAddr(a))
		}
	}
	s.placePods(c)
	for a := range others {
		if !s.others[a] {
			s.must(s.world.AddAddr(a))
		}
	}
	s.others = others
	s.placeServices(checks)
	s.settle()
}

// resetAccounts takes the labels of earlier cases from service accounts.
func (s *corpusStage) resetAccounts() {
	s.t.Helper()
	for _, d := range s.accounts {
		s.apply(fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n", d.Name, d.Namespace))
	}
	s.accounts = nil
}

func (s *corpusStage) awaitAccount(namespace string) {
	s.t.Helper()
	testutil.WaitFor(s.t, soon, "the default service account of "+namespace, func() bool {
		_, err := s.client.CoreV1().ServiceAccounts(namespace).Get(s.t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
}

// sameNode demands that the node, which has registered itself, is the one of the case.
func (s *corpusStage) sameNode(c corpus.Case, name string) {
	s.t.Helper()
	for _, u := range c.Updates {
		u, ok := u.(model.NodeUpdate)
		if !ok || u.Name != name || u.Node == nil {
			continue
		}
		i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.Name() == name })
		if i < 0 || !slices.Equal(s.nodes[i].Addrs(), u.Node.Addrs) {
			s.t.Fatalf("%s: no node of the stage is %s with %v", c.Name, name, u.Node.Addrs)
		}
	}
}

// outside are all addresses in the checks that are none of the cluster's: the outside host has them.
func (s *corpusStage) outside(c corpus.Case, checks []corpus.Check) map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	for _, n := range s.nodes {
		for _, a := range n.Addrs() {
			taken[a] = true
		}
	}
	for _, e := range c.Endpoints() {
		for _, a := range e.Addrs {
			taken[a] = true
		}
	}
	others := map[netip.Addr]bool{}
	for _, k := range checks {
		for _, a := range []netip.Addr{k.Packet.Src, k.Packet.Dst} {
			if !taken[a] {
				others[a] = true
			}
		}
	}
	return others
}

// host is the machine that has the address.
func (s *corpusStage) host(a netip.Addr, id *model.EndpointID) *lab.Host {
	if id != nil {
		if p := s.pods[*id]; p != nil && p.network != nil {
			return p.network.Host
		}
		return nil
	}
	for _, n := range s.nodes {
		if slices.Contains(n.Addrs(), a) {
			return n.Host
		}
	}
	return s.world.Host
}

// text is the document as the cluster serves its kind: Calico's are in one of their two groups.
func (s *corpusStage) text(d corpus.Document) string {
	if d.OfCalico() {
		return strings.Replace(string(d.Text), d.APIVersion, s.calicoGroup, 1)
	}
	return string(d.Text)
}

// put creates the policy, or replaces the one of its name as a whole: nothing that the API server has filled in for an
// earlier one stays.
func (s *corpusStage) put(d corpus.Document) error {
	o := s.objects(s.text(d))[0]
	resource, err := s.resource(o)
	if err != nil {
		return err
	}
	if before, err := resource.Get(s.t.Context(), o.GetName(), metav1.GetOptions{}); err == nil {
		o.SetResourceVersion(before.GetResourceVersion()) // custom resources are not replaced without
	}
	validation := metav1.FieldValidationStrict
	if d.Stored { // it is what an API server has, however that came
		validation = metav1.FieldValidationIgnore
	}
	_, err = resource.Update(s.t.Context(), o, metav1.UpdateOptions{FieldValidation: validation})
	if apierrors.IsNotFound(err) {
		_, err = resource.Create(s.t.Context(), o, metav1.CreateOptions{FieldValidation: validation})
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", object(d), err)
	}
	if !slices.ContainsFunc(s.policies, d.SameObject) {
		s.policies = append(s.policies, d)
	}
	return nil
}

// removePolicies deletes the policies of earlier cases but those of the same names.
func (s *corpusStage) removePolicies(but []corpus.Document) {
	s.t.Helper()
	var left []corpus.Document
	for _, d := range s.policies {
		if slices.ContainsFunc(but, d.SameObject) {
			left = append(left, d)
			continue
		}
		s.delete(s.text(d))
	}
	s.policies = left
}

// route adds or removes the routes to a pod, whose address is of none of the nodes' ranges, from everywhere else.
func (s *corpusStage) route(p *lab.Pod, add bool) error {
	var errs []error
	for _, a := range p.Addrs() {
		to := netip.PrefixFrom(a, a.BitLen())
		for _, from := range append([]router{s.world, s.control}, s.routers(p)...) {
			if add {
				errs = append(errs, from.RouteVia(to, p.Node()))
			} else {
				errs = append(errs, from.UnrouteVia(to, p.Node()))
			}
		}
	}
	return errors.Join(errs...)
}

// router is a machine that can be told where addresses are.
type router interface {
	RouteVia(dst netip.Prefix, n *lab.Node) error
	UnrouteVia(dst netip.Prefix, n *lab.Node) error
}

// routers are the other nodes.
func (s *corpusStage) routers(p *lab.Pod) (all []router) {
	for _, n := range s.nodes {
		if n.Node != p.Node() {
			all = append(all, n)
		}
	}
	return all
}
