package verify

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Marks are the properties of an address in the kernel besides its class. Those of a prefix hold for all longer prefixes inside it,
// except Local.
type Marks struct {
	Node       bool   // it is this node's own
	Translated bool   // kube-proxy may translate it
	Owned      bool   // an endpoint, a node or a Service has it, so it cannot be a further source of another endpoint
	Local      bool   // it is a local endpoint's own
	Interface  uint32 // the ifindex of that endpoint; 0: it is programmed on no interface
}

// String returns the marks in words, such as "of this node, owned", or "none".
func (m Marks) String() string {
	var parts []string
	if m.Node {
		parts = append(parts, "of this node")
	}
	if m.Translated {
		parts = append(parts, "of a Service")
	}
	if m.Owned {
		parts = append(parts, "owned")
	}
	if m.Local {
		parts = append(parts, "of the pod on interface "+strconv.FormatUint(uint64(m.Interface), 10))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Marking compares the marks of all addresses in the kernel with those that the objects demand. Not safe for concurrent use.
type Marking struct {
	regions *Regions
	atoms   *Atoms
	states  map[Marks]uint32
	list    []Marks
	owners  map[model.SetID]owner
	members map[model.SetID][]netip.Prefix
}

// owner is the owner of an address.
type owner struct {
	ifindex uint32
	unsure  bool
}

// hostAddrs is the atom of the addresses that the dataplane found on the node.
const hostAddrs model.SetID = "@host"

// MarkSets returns the sets of model that give marks to their members. No rule refers to them.
func MarkSets() []model.SetID {
	return []model.SetID{model.SetServiceAddrs, model.SetNodeAddrs, model.SetOwnedAddrs}
}

// NewMarking returns a Marking without addresses. members are those of MarkSets, host the node's own addresses as the
// dataplane found them.
func NewMarking(members map[model.SetID][]netip.Prefix, host []netip.Addr, pause func() error) *Marking {
	m := &Marking{atoms: NewAtoms(), states: map[Marks]uint32{}, owners: map[model.SetID]owner{}, members: map[model.SetID][]netip.Prefix{}}
	m.regions = NewRegions(m.atoms, pause)
	for _, id := range MarkSets() {
		m.add(id, members[id])
	}
	var own []netip.Prefix
	for _, a := range host {
		a = a.Unmap().WithZone("")
		own = append(own, netip.PrefixFrom(a, a.BitLen()))
	}
	m.add(hostAddrs, own)
	return m
}

func (m *Marking) add(id model.SetID, members []netip.Prefix) {
	m.atoms.AddSet(id)
	m.members[id] = members
	m.regions.AddMembers(id, members)
}

// Own adds the addresses of a local endpoint, which is programmed on an interface. unsure: their entries in the kernel may be changing
// and are not compared.
func (m *Marking) Own(id model.EndpointID, addrs []netip.Addr, ifindex uint32, unsure bool) {
	name := model.SetID("@pod " + id.String())
	m.owners[name] = owner{ifindex, unsure}
	var members []netip.Prefix
	for _, a := range addrs {
		members = append(members, netip.PrefixFrom(a, a.BitLen()))
	}
	m.add(name, members)
}

// AddEntries adds the kernel's entries.
func (m *Marking) AddEntries(list []Entry) {
	numbered := make([]Entry, len(list))
	for i, e := range list {
		n, ok := m.states[e.Marks]
		if !ok {
			n = uint32(len(m.list))
			m.states[e.Marks], m.list = n, append(m.list, e.Marks)
		}
		numbered[i] = Entry{Prefix: e.Prefix, Class: n}
	}
	m.regions.AddEntries(numbered)
}

// Wrong returns addresses whose marks are not as they should be: the first few of each kind.
func (m *Marking) Wrong() ([]netip.Addr, error) {
	pairs, err := m.regions.Pairs()
	var wrong []netip.Addr
	for _, p := range pairs {
		want, sure := m.want(p.Signature)
		if sure && want != m.list[p.Class] {
			wrong = append(wrong, p.Some...)
		}
	}
	return wrong, err
}

// Want returns the marks that an address should have. Wrong must have returned the address.
func (m *Marking) Want(a netip.Addr) Marks {
	var s Signature
	for id, atom := range m.atoms.sets {
		if slices.ContainsFunc(m.members[id], func(p netip.Prefix) bool { return p.Contains(a) }) {
			s = append(s, atom)
		}
	}
	slices.Sort(s)
	want, _ := m.want(s)
	return want
}

// want returns the marks that a signature demands; not sure: they cannot be compared.
func (m *Marking) want(s Signature) (want Marks, sure bool) {
	has := func(id model.SetID) bool { return s.has(m.atoms.sets[id]) }
	want = Marks{Node: has(model.SetNodeAddrs) || has(hostAddrs), Translated: has(model.SetServiceAddrs), Owned: has(model.SetOwnedAddrs)}
	for id, o := range m.owners {
		if has(id) {
			if o.unsure {
				return want, false
			}
			want.Local, want.Interface = true, o.ifindex
		}
	}
	return want, true
}
