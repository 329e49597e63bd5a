package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// Verifier reads for verification what the kernel has, and nothing of what the dataplane remembers of it, but for the sets of unrecorded
// classes, which nothing in the kernel asks for.
type Verifier struct {
	dataplane *BPF
	kernel    *kernel
	asker     *bpfmaps.Asker // of the programs in force when verification began
	read      map[uint32]slotRead

	unrecorded map[uint32][]uint32 // the sets of those classes, as of version
	version    uint64              // of classSets
}

var _ verify.Kernel = (*Verifier)(nil)

// Verifier returns the Verifier of d.
func (d *BPF) Verifier() *Verifier {
	return &Verifier{dataplane: d, kernel: d.kernel}
}

// Begin implements verify.Kernel.
func (v *Verifier) Begin(func() error) (err error) {
	v.read = map[uint32]slotRead{}
	v.asker, err = v.dataplane.programs.Asker()
	return err
}

// Round implements verify.Kernel: each call reads the maps.
func (v *Verifier) Round() error {
	v.unrecorded = nil // they may be those of before the dataplane was opened again
	v.noteUnrecorded()
	return nil
}

// noteUnrecorded copies the unrecorded classes, since other goroutines ask for them, too.
func (v *Verifier) noteUnrecorded() {
	if c := v.dataplane.state.classes; v.unrecorded == nil || c.version != v.version {
		v.unrecorded, v.version = maps.Clone(c.unrecorded), c.version
	}
}

// HasMarks implements verify.Kernel.
func (v *Verifier) HasMarks() bool { return true }

// End implements verify.Kernel.
func (v *Verifier) End() error { return v.asker.Close() }

// Entries implements verify.Kernel.
func (v *Verifier) Entries() ([]verify.Entry, error) {
	a := v.kernel.maps.Addresses
	hosts4, err1 := a.IP4Host.Load()
	hosts6, err2 := a.IP6Host.Load()
	prefixes4, err3 := a.IP4Net.Load()
	prefixes6, err4 := a.IP6Net.Load()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	list := make([]verify.Entry, 0, len(hosts4)+len(hosts6)+len(prefixes4)+len(prefixes6)+2)
	for k, info := range hosts4 {
		list = append(list, entryOf(netip.PrefixFrom(netip.AddrFrom4(k.Addr), 32), info))
	}
	for k, info := range hosts6 {
		list = append(list, entryOf(netip.PrefixFrom(netip.AddrFrom16(k.Addr), 128), info))
	}
	// Programs look for a single address among prefixes only if it has no entry of its own.
	for k, info := range prefixes4 {
		if _, hidden := hosts4[bpf.IP4{Addr: k.Addr}]; k.Prefixlen != 32 || !hidden {
			list = append(list, entryOf(netip.PrefixFrom(netip.AddrFrom4(k.Addr), int(k.Prefixlen)), info))
		}
	}
	for k, info := range prefixes6 {
		if _, hidden := hosts6[bpf.IP6{Addr: k.Addr}]; k.Prefixlen != 128 || !hidden {
			list = append(list, entryOf(netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Prefixlen)), info))
		}
	}
	if _, ok := prefixes4[bpf.Net4{}]; !ok {
		list = append(list, verify.Entry{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Class: classes.None4})
	}
	if _, ok := prefixes6[bpf.Net6{}]; !ok {
		list = append(list, verify.Entry{Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Class: classes.None6})
	}
	return list, nil
}

func entryOf(p netip.Prefix, info bpf.AddrInfo) verify.Entry {
	has := func(flag uint32) bool { return info.Flags&flag != 0 }
	e := verify.Entry{Prefix: p, Class: info.Class, Marks: verify.Marks{Node: has(bpf.AddrHost), Translated: has(bpf.AddrMayTranslate),
		Owned: has(bpf.AddrOwned), Local: has(bpf.AddrEndpoint), Interface: info.Ifindex}}
	return e
}

// Entry implements verify.Kernel.
func (v *Verifier) Entry(a netip.Addr) (verify.Entry, error) {
	info, ok, err := v.kernel.maps.Addresses.Lookup(a)
	if !ok && a.Is6() {
		info.Class = classes.None6
	}
	return entryOf(netip.PrefixFrom(a, a.BitLen()), info), err
}

// HostAddrs implements verify.Kernel.
func (v *Verifier) HostAddrs() []netip.Addr { return v.kernel.host.Addrs() }

// InForce implements verify.Kernel.
func (v *Verifier) InForce(id model.EndpointID) (policies [2]verify.PolicyID, ok bool, err error) {
	v.noteUnrecorded()
	ep := v.dataplane.state.endpoints.roster.bound[id]
	if ep == nil || ep.ifindex == 0 {
		return policies, false, nil
	}
	entry, err := v.endpoint(ep.ifindex)
	if err != nil || entry.Flags&bpf.EPReady == 0 {
		return policies, false, err
	}
	policies, err = v.identify([2]uint64{entry.Ingress, entry.Egress})
	return policies, err == nil, err
}

// identify returns the ids of policies that words refer to. Endpoints have their own generations of a policy that they share;
// a slot has that of its content.
func (v *Verifier) identify(words [2]uint64) (policies [2]verify.PolicyID, err error) {
	for d, word := range words {
		slot, _ := bpfmaps.SplitPolicyWord(word)
		var shape bpf.Slot
		if err := v.kernel.maps.Map(bpf.MargayMapSlots).Lookup(&slot, &shape); err != nil {
			return policies, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapSlots, slot, err)
		}
		policies[d] = verify.PolicyID(bpfmaps.PolicyWord(slot, shape.Generation))
		v.expect(slot)
	}
	return policies, nil
}

// Staged implements verify.Kernel.
func (v *Verifier) Staged(id model.EndpointID) (policies [2]verify.PolicyID, err error) {
	ep := v.dataplane.state.endpoints.roster.bound[id]
	if ep == nil || ep.ifindex == 0 {
		return policies, nil
	}
	entry, err := v.endpoint(ep.ifindex)
	if err != nil {
		return policies, err
	}
	var words bpf.Staged
	err = v.kernel.maps.Map(bpf.MargayMapStaged).Lookup(&ep.ifindex, &words)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return policies, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapStaged, ep.ifindex, err)
	}
	if policies, err = v.identify([2]uint64{words.Ingress, words.Egress}); err != nil {
		return policies, err
	}
	for d, flag := range [2]uint32{bpf.EPStagedIngress, bpf.EPStagedEgress} {
		if entry.Flags&flag == 0 || [2]uint64{words.Ingress, words.Egress}[d] == 0 {
			policies[d] = 0
		}
	}
	return policies, nil
}

// endpoint is the endpoint of an interface as programs find it; zero: there is none.
func (v *Verifier) endpoint(ifindex uint32) (entry bpf.Endpoint, err error) {
	entry, ok, err := v.endpointAt(ifindex%bpf.Endpoints, ifindex)
	if ok || err != nil {
		return entry, err
	}
	var further uint32
	err = v.kernel.maps.Map(bpf.MargayMapEndpointPlaces).Lookup(&ifindex, &further)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return entry, nil
	}
	if err != nil {
		return entry, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapEndpointPlaces, ifindex, err)
	}
	entry, _, err = v.endpointAt(further, ifindex)
	return entry, err
}

// endpointAt is the endpoint in a place; false, and zero: the place does not exist, or is another interface's.
func (v *Verifier) endpointAt(place, ifindex uint32) (entry bpf.Endpoint, ok bool, err error) {
	err = v.kernel.maps.Map(bpf.MargayMapEndpoints).Lookup(&place, &entry)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return entry, false, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapEndpoints, place, err)
	}
	if err != nil || entry.Ifindex != ifindex {
		return bpf.Endpoint{}, false, nil
	}
	return entry, true, nil
}

// Policy implements verify.Kernel.
func (v *Verifier) Policy(id verify.PolicyID, d model.Direction) (verify.Policy, error) {
	slot, _ := bpfmaps.SplitPolicyWord(uint64(id))
	read, err := v.readSlot(slot)
	if err != nil {
		return nil, err
	}
	read.word, read.egress, read.ask, read.unrecorded = uint64(id), d == model.Egress, v.asker.Ask, v.unrecorded
	return read, nil
}

// readSlot reads the content of a slot, and compares it with what was written when expect was called.
func (v *Verifier) readSlot(slot uint32) (*readPolicy, error) {
	content, err := v.kernel.maps.ReadSlot(slot)
	if err != nil {
		return nil, err
	}
	seen := v.read[slot]
	seen.altered, seen.rules = nil, content.Rules
	if seen.known {
		seen.altered = seen.sum.Altered(&content)
	}
	read, err := newReadPolicy(content, func(n uint32) (string, error) {
		text, _, err := v.kernel.maps.Names.Rule(n)
		return text, err
	})
	if err != nil {
		return nil, err
	}
	seen.texts, seen.compared = read.texts, true
	v.read[slot] = seen
	return read, nil
}
