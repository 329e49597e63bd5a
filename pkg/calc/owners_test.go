package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// Whose an address is, told by the sets it is in: sets of the labels app=a, app=b and so on.
func TestAddressOfATerminatingEndpoint(t *testing.T) {
	app := func(name string) func(*model.Endpoint) { return label("app", name) }
	tests := []struct {
		name string
		pods []model.Update
		want string // the sets of 10.0.0.1
	}{
		{"is its own", []model.Update{pod("x/a", "10.0.0.1", app("a"), terminating)}, "a"},
		{"beside another's address", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.2", app("b"))}, "a"},
		{"is the other's", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"))}, "b"},
		{"is the other's, on another node", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"), on("node-2"))}, "b"},
		{"is the other's, of remote ones", []model.Update{
			pod("x/b", "10.0.0.1", app("a"), terminating, on("node-2")), pod("x/a", "10.0.0.1", app("b"), on("node-2"))}, "b"},
		{"is several terminating ones'", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"), terminating)}, "a b"},
		{"is nobody's but those that live", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"), terminating),
			pod("x/c", "10.0.0.1", app("c")), pod("x/d", "10.0.0.1", app("d"))}, "c d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var policies []model.Update
			for _, name := range []string{"a", "b", "c", "d"} {
				policies = append(policies, policyOf(name, "app == 'probe'", fromSelector(fmt.Sprintf("app == '%s'", name))))
			}
			policies = append(policies, pod("x/probe", "10.0.0.9", app("probe")))
			for _, order := range [][]model.Update{tt.pods, reversed(tt.pods)} {
				r := newRig(t, policies...)
				for _, p := range order {
					r.apply(p)
				}
				requireSets(t, r, tt.want)
				for _, p := range order { // those that live before they terminate
					u := p.(model.EndpointUpdate)
					alive := *u.Endpoint
					alive.Terminating = false
					r.apply(model.EndpointUpdate{ID: u.ID, Endpoint: &alive})
				}
				r.apply(order...)
				requireSets(t, r, tt.want)
				for _, p := range order {
					r.apply(model.Absent(p))
					r.apply(p)
				}
				requireSets(t, r, tt.want)
			}
		})
	}
}

func reversed(updates []model.Update) []model.Update {
	updates = slices.Clone(updates)
	slices.Reverse(updates)
	return updates
}

// requireSets fails unless 10.0.0.1 is in the sets of these values of app.
func requireSets(t *testing.T, r *rig, want string) {
	t.Helper()
	var in []string
	for text, members := range r.sets() {
		if strings.Contains(members, "10.0.0.1/32") {
			in = append(in, strings.Trim(strings.TrimPrefix(text, "selector app == "), `"`))
		}
	}
	slices.Sort(in)
	if got := strings.Join(in, " "); got != want {
		t.Errorf("10.0.0.1 is in the sets of %q, want %q (%v)", got, want, r.sets())
	}
}

// A pod of this node that is being deleted loses its address to the next one, and with it what the dataplane lets it send.
func TestTerminatingEndpointOfThisNodeLosesItsAddress(t *testing.T) {
	old := pod("shop/old", "10.0.0.1 fd00::1", terminating)
	r := newRig(t, namespace("shop"), old)
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs); got != "[10.0.0.1 fd00::1]" {
		t.Errorf("before: %s", got)
	}
	heir := pod("shop/heir", "10.0.0.1")
	c := r.apply(heir)
	if got := slices.Collect(maps.Keys(c.Endpoints)); len(got) != 2 {
		t.Errorf("changed: %v, want both", got)
	}
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs, r.endpoint("shop/heir").Addrs); got != "[fd00::1] [10.0.0.1]" {
		t.Errorf("shared: %s", got)
	}
	if got, _ := r.graph.EndpointByAddr(addrs("10.0.0.1")[0]); got != id("shop/heir") {
		t.Errorf("10.0.0.1 is said to be that of %s", got)
	}
	if p := r.graph.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
	r.apply(model.Absent(heir))
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs); got != "[10.0.0.1 fd00::1]" {
		t.Errorf("alone again: %s", got)
	}
}

// Most terminating endpoints share no address, and finding that out must not take a look at every endpoint.
func TestOnlySharedAddressesAreLookedFor(t *testing.T) {
	g, looked := New(thisNode), 0
	settle := func() {
		g.owners.settle(func(yield func(netip.Addr)) { looked++ })
	}
	join := func(name string, terminating bool, addr string) {
		g.owners.join(id(name), terminating, slices.Values(addrs(addr)))
	}
	join("x/a", false, "10.0.0.1")
	join("x/b", false, "fd00::2")
	join("x/c", true, "10.0.0.3")
	join("x/d", true, "fd00::4")
	settle()
	join("x/e", false, "10.0.0.3")
	settle()
	if looked != 0 {
		t.Errorf("looked %d times, although what has been shared came after what terminates", looked)
	}
	join("x/f", true, "10.0.0.1")
	settle()
	if looked != 1 {
		t.Errorf("looked %d times, want once", looked)
	}
}
