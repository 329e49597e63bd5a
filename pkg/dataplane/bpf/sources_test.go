package bpf

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

var gateway = model.WorkloadID("t", "gw")

// listing is a pod on interface 1003 that lists further sources.
func listing(prefixes ...string) model.EndpointUpdate {
	ep := &model.Endpoint{Node: "n", Iface: "cali2", Addrs: []netip.Addr{netip.MustParseAddr("10.0.9.1")}, Labels: map[string]string{"app": "gw"}}
	for _, p := range prefixes {
		ep.Sources = append(ep.Sources, netip.MustParsePrefix(p))
	}
	return model.EndpointUpdate{ID: gateway, Endpoint: ep}
}

// wantSources checks what the kernel lets the gateway send from, and that nothing else is in the map.
func (n *node) wantSources(t *testing.T, when string, prefixes ...string) {
	t.Helper()
	entry, ok := n.Kernel(gateway)
	if ok && (entry.Flags&bpf.EPSources != 0) != (len(prefixes) > 0) {
		t.Errorf("%s: flags %#x of the endpoint", when, entry.Flags)
	}
	keys, err := n.Maps().Addresses.Sources.Load()
	if err != nil {
		t.Fatal(err)
	}
	have := []string{}
	for k := range keys {
		if k.Ifindex != 1003 {
			t.Errorf("%s: an entry of interface %d", when, k.Ifindex)
		}
		have = append(have, bpfmaps.SourcePrefix(k).String())
	}
	slices.Sort(have)
	slices.Sort(prefixes)
	if !slices.Equal(have, prefixes) {
		t.Errorf("%s: %v in the kernel, want %v", when, have, prefixes)
	}
}

func (n *node) flagsOf(t *testing.T, a string) uint32 {
	t.Helper()
	info, _, err := n.Maps().Addresses.Lookup(netip.MustParseAddr(a))
	if err != nil {
		t.Fatal(err)
	}
	return info.Flags
}

func TestFurtherSourcesFollowTheirEndpoint(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	n := openNode(t, dir, nil)
	stage := restartStages[0].updates()
	n.mustApply(t, append(stage, listing())...)
	n.wantSources(t, "none")
	n.mustApply(t, listing("203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0"))
	n.wantSources(t, "listed", "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0")
	if n.flagsOf(t, "10.0.0.2")&bpf.AddrOwned == 0 || n.flagsOf(t, "203.0.113.1")&bpf.AddrOwned != 0 {
		t.Error("the address of another pod is not known as owned, or one that no pod has is")
	}
	n.mustApply(t, listing("203.0.113.0/25"))
	n.wantSources(t, "others", "203.0.113.0/25")
	for range 1100 { // what is no longer listed is covered for a while
		n.mustApply(t)
	}
	if n.flagsOf(t, "10.0.0.2")&bpf.AddrOwned != 0 {
		t.Error("an address outside of every list is marked still")
	}

	// Taken over as it is, and kept by the first plan.
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	n.wantSources(t, "taken over", "203.0.113.0/25")
	n.mustApply(t, append(stage, listing("203.0.113.0/25"))...)
	n.wantSources(t, "after a restart", "203.0.113.0/25")

	// Repaired if somebody else changes them.
	if err := n.Maps().Map(bpf.MargayMapSources).Put(bpfmaps.SourceKey(1003, netip.MustParsePrefix("0.0.0.0/0")), uint32(1)); err != nil {
		t.Fatal(err)
	}
	n.Resync()
	n.mustApply(t)
	n.wantSources(t, "repaired", "203.0.113.0/25")

	// Gone with the setting, over a restart; and with the pod.
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	defer func() { mustClose(t, n.BPF) }()
	n.mustApply(t, append(stage, listing())...)
	n.wantSources(t, "after a restart without the setting")
	n.mustApply(t, listing("203.0.113.0/24"))
	n.mustApply(t, model.Absent(listing()))
	n.wantSources(t, "without the pod")
}

// The prefix goes first when it is taken away: before addresses lose the mark that kept the pod from sending as their owners.
func TestFurtherSourcesCloseBeforeMarksGo(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, append(restartStages[0].updates(), listing("0.0.0.0/0"))...)
	for i, step := range order {
		if step.what != "move addresses" {
			continue
		}
		take := order[i].do
		defer func() { order[i].do = take }()
		order[i].do = func(s *state) error {
			keys, err := s.kernel.maps.Addresses.Sources.Load()
			if err != nil || len(keys) > 0 {
				t.Errorf("when addresses move, %v is listed in the kernel still; %v", keys, err)
			}
			return take(s)
		}
	}
	n.mustApply(t, listing())
	n.wantSources(t, "in the end")
}

// A full map leaves prefixes out, and holds up nothing else; neither does it keep a pod from losing one.
func TestFurtherSourcesThatDoNotFitAreLeftOut(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), map[string]uint32{bpf.MargayMapSources: 2})
	defer mustClose(t, n.BPF)
	n.mustApply(t, append(restartStages[0].updates(), listing("203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24"))...)
	entry, ok := n.Kernel(gateway)
	if keys, err := n.Maps().Addresses.Sources.Load(); !ok || entry.Flags&bpf.EPReady == 0 || err != nil || len(keys) == 0 || len(keys) > 2 {
		t.Errorf("endpoint %v %+v, %d entries, %v", ok, entry, len(keys), err)
	}
	wantText := func(when, want string) {
		t.Helper()
		for _, s := range n.Endpoints() {
			got := strings.NewReplacer("203.0.113.0/24", "P", "198.51.100.0/24", "P", "192.0.2.0/24", "P").Replace(s.Sources)
			if s.ID == gateway && got != want || s.ID != gateway && got != "" {
				t.Errorf("%s: %s: %q", when, s.ID, got)
			}
		}
	}
	wantText("two of three", "packets from the further source P are dropped: the map sources is full or cannot be written")
	n.mustApply(t, listing("192.0.2.0/24"))
	wantText("one of two", "")
	n.wantSources(t, "one that fits", "192.0.2.0/24")
}

// While the entry of an address is missing it is not known whether it is owned: no further source counts.
func TestFurtherSourcesAreClosedWhileAnAddressIsMissing(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), map[string]uint32{bpf.MargayMapIp4Host: 4})
	defer mustClose(t, n.BPF)
	n.mustApply(t, append(restartStages[0].updates(), listing("203.0.113.0/24"))...)
	n.wantSources(t, "at first", "203.0.113.0/24")
	var others []model.Update
	for i := range 8 {
		u := endpoint4("b"+string(rune('0'+i)), "", netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String(), nil)
		others = append(others, u)
	}
	n.graph.Apply(others)
	if err := n.Apply(context.Background(), n.graph.Flush()); err == nil {
		t.Fatal("all addresses fit: the test tests nothing")
	}
	if entry, ok := n.Kernel(gateway); !ok || entry.Flags&bpf.EPSources != 0 || entry.Flags&bpf.EPReady == 0 {
		t.Errorf("endpoint %v, %+v: it is to be open, and for its own addresses only", ok, entry)
	}
	for _, s := range n.Endpoints() {
		if (s.Sources != "") != (s.ID == gateway) {
			t.Errorf("%s: further sources: %q", s.ID, s.Sources)
		}
	}
	for i := range others {
		others[i] = model.Absent(others[i])
	}
	n.mustApply(t, others...)
	n.mustApply(t)
	n.wantSources(t, "with room again", "203.0.113.0/24")
}
