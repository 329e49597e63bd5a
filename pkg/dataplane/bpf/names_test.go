package bpf

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

// Endpoints that are in the kernel have their names there, by interface, and no others do: after changes, after another
// agent has taken over, and after somebody has removed one.
func TestEndpointsAreNamedInTheKernel(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	want := func(n *node, want map[uint32]string) {
		t.Helper()
		entries, err := n.kernel.maps.Names.Endpoints.Load()
		if err != nil {
			t.Fatal(err)
		}
		got := map[uint32]string{}
		for ifindex, name := range maps.All(entries) {
			got[ifindex] = bpfmaps.NameText(name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	}
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}, more: 2}
	a := s.updates()[0].(model.EndpointUpdate).ID.String()
	a0, a1 := s.updates()[4].(model.EndpointUpdate).ID, s.updates()[5].(model.EndpointUpdate).ID
	first := openNode(t, dir, nil)
	first.mustApply(t, s.updates()...)
	want(first, map[uint32]string{1000: a, 1001: a0.String(), 1002: a1.String()})
	heir := endpoint4("heir", "cali0", "10.0.2.9", map[string]string{"app": "a"}) // of an interface
	first.mustApply(t, model.EndpointUpdate{ID: a0}, heir)
	want(first, map[uint32]string{1000: a, 1001: heir.ID.String(), 1002: a1.String()})
	first.mustApply(t, model.EndpointUpdate{ID: heir.ID})
	want(first, map[uint32]string{1000: a, 1002: a1.String()})
	mustClose(t, first.BPF)

	second := openNode(t, dir, nil)
	defer mustClose(t, second.BPF)
	want(second, map[uint32]string{1000: a, 1002: a1.String()})
	second.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}, more: 1}.updates()...)
	want(second, map[uint32]string{1000: a, 1001: a0.String()})
	one := uint32(1000)
	if err := second.kernel.maps.Map("endpoint_names").Delete(&one); err != nil {
		t.Fatal(err)
	}
	second.Resync()
	second.mustApply(t)
	want(second, map[uint32]string{1000: a, 1001: a0.String()})
}
