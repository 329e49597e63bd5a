package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// slotRead is a slot as Policy has read it, with what it should hold as InForce has found that before.
type slotRead struct {
	sum     bpfmaps.Sum
	known   bool
	altered []string // maps
	rules   []bpf.Rule
	texts   []string // names of rules, parallel to rules
}

// expect notes what a slot should hold.
func (v *Verifier) expect(slot uint32) {
	seen := v.read[slot]
	if sum, known := v.dataplane.state.tables.slots.Sum(slot); sum != seen.sum {
		v.read[slot] = slotRead{sum: sum, known: known}
	}
}

// Faults implements verify.Kernel.
func (v *Verifier) Faults(id model.EndpointID) ([]string, error) {
	known := v.dataplane.state.endpoints
	ep := known.roster.bound[id]
	if ep == nil || ep.policy == nil || ep.ifindex == 0 {
		return nil, nil
	}
	got, err := v.endpoint(ep.ifindex)
	if err != nil {
		return nil, err
	}
	var faults []string
	if want, ok := known.entry(ep, ep.ifindex); ok {
		faults = entryFaults(want, got)
	}
	stagedFault, err := mapFault(v.kernel.maps.Staged, v.kernel.maps.Map(bpf.MargayMapStaged), ep.ifindex)
	faults = append(faults, stagedFault...)
	if !v.kernel.maps.Names.Endpoints.IsUnwritten(ep.ifindex) {
		text, _, err2 := v.kernel.maps.Names.Endpoint(ep.ifindex)
		if want := plan.NameText(id.String()); err2 == nil && text != want {
			faults = append(faults, fmt.Sprintf("map %s calls its interface %q", bpf.MargayMapEndpointNames, text))
		}
		err = errors.Join(err, err2)
	}
	staged, _ := v.kernel.maps.Staged.Get(ep.ifindex)
	for _, word := range [4]uint64{got.Ingress, got.Egress, staged.Ingress, staged.Egress} {
		slot, _ := bpfmaps.SplitPolicyWord(word)
		faults = append(faults, v.slotFaults(slot)...)
	}
	if host, ok := v.kernel.host.(*Linux); ok {
		faults = append(faults, host.faults(ep.ifindex)...)
	}
	return faults, err
}

// entryFaults are the fields of an endpoint's entry that are not as they should be.
func entryFaults(want, got bpf.Endpoint) (faults []string) {
	wantFields, gotFields := entryFields(want), entryFields(got)
	for i, field := range wantFields {
		if gotFields[i] != field {
			faults = append(faults, fmt.Sprintf("map %s has %s, should have %s", bpf.MargayMapEndpoints, gotFields[i], field))
		}
	}
	return faults
}

// entryFields are the fields of an entry in words.
func entryFields(e bpf.Endpoint) []string {
	return []string{
		fmt.Sprint("flags ", e.Flags), "ingress policy " + wordText(e.Ingress), "egress policy " + wordText(e.Egress), fmt.Sprint("number ", e.Id),
		fmt.Sprint("share ", e.Share), fmt.Sprint("peer interface ", e.PeerIfindex), fmt.Sprintf("peer MAC %x", e.Mac), fmt.Sprint("peer MTU ", e.Mtu),
		"IPv4 address " + netip.AddrFrom4(e.Addr4).String(), "IPv6 address " + netip.AddrFrom16(e.Addr6).String(),
	}
}

func wordText(word uint64) string {
	slot, generation := bpfmaps.SplitPolicyWord(word)
	return fmt.Sprintf("in slot %d of generation %d", slot, generation)
}

// mapFault compares the entry of a key with the desired one, unless that is still to be written.
func mapFault[K, V comparable](t *bpfmaps.Table[K, V], m *ebpf.Map, key K) ([]string, error) {
	if t.IsUnwritten(key) {
		return nil, nil
	}
	var got V
	err := m.Lookup(&key, &got)
	is := err == nil
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read map %s: %w", t.Name(), err)
	}
	if want, ok := t.Get(key); ok != is || want != got {
		return []string{fmt.Sprintf("map %s key %v has %+v, should have %+v", t.Name(), key, got, want)}, nil
	}
	return nil, nil
}

// mostNames is how many entries of a policy have the names of their rules compared here, so that the loop does not wait for
// long. Those of rules that decide about packets are compared in any case.
const mostNames = 8192

// slotFaults are what is altered in a slot that was read, though no packet may be judged otherwise, and in the names of its rules.
func (v *Verifier) slotFaults(slot uint32) (faults []string) {
	seen := v.read[slot]
	if sum, known := v.dataplane.state.tables.slots.Sum(slot); known && sum == seen.sum && len(seen.altered) > 0 {
		faults = append(faults, fmt.Sprintf("slot %d is altered in %s", slot, strings.Join(seen.altered, ", ")))
	}
	names := v.kernel.maps.Names.Rules
	for i, text := range seen.texts[:min(len(seen.texts), mostNames)] {
		n := seen.rules[i].Id
		if want, ok := names.Get(n); ok && !names.IsUnwritten(n) && bpfmaps.NameText(want) != text {
			faults = append(faults, fmt.Sprintf("map %s calls rule %d %q, should call it %q", bpf.MargayMapRuleNames, n, text, bpfmaps.NameText(want)))
		}
	}
	return faults
}

// NodeFaults implements verify.Kernel.
func (v *Verifier) NodeFaults() ([]string, error) {
	faults := v.kernel.maps.PinFaults()
	foreign, err1 := v.kernel.endpoints.Foreign()
	for _, ifindex := range foreign {
		faults = append(faults, fmt.Sprintf("map %s has an entry of interface %d, which is no endpoint's", bpf.MargayMapEndpoints, ifindex))
	}
	generations, err2 := v.kernel.gens.Fault()
	if generations != "" {
		faults = append(faults, generations)
	}
	sources, err3 := tableFaults(v.kernel.maps.Addresses.Sources)
	staged, err4 := tableFaults(v.kernel.maps.Staged)
	faults = slices.Concat(faults, sources, staged)
	if host, ok := v.kernel.host.(*Linux); ok && v.dataplane.state.interfaces.guarded {
		faults = append(faults, host.faults(0)...)
	}
	return faults, errors.Join(err1, err2, err3, err4)
}

// tableFaults compares all entries of a small map with the desired ones.
func tableFaults[K, V comparable](t *bpfmaps.Table[K, V]) (faults []string, err error) {
	got, err := t.Load()
	if err != nil || t.Pending() > 0 {
		return nil, err
	}
	for k, want := range t.All() {
		if is, ok := got[k]; !ok || is != want {
			faults = append(faults, fmt.Sprintf("map %s key %+v has %+v, should have %+v", t.Name(), k, is, want))
		}
		delete(got, k)
	}
	for k, is := range got {
		faults = append(faults, fmt.Sprintf("map %s has %+v for key %+v, should have no such entry", t.Name(), is, k))
	}
	return faults, nil
}

// Sets implements verify.Kernel.
func (v *Verifier) Sets() []verify.Set {
	s := v.dataplane.state
	return verify.NumberedSets(s.names.sets, func(yield func(map[model.SetID][]netip.Prefix) bool) {
		for _, p := range s.tables.list {
			if p.program != nil && !yield(p.program.NetSets) {
				return
			}
		}
	})
}

// SetFault implements verify.Kernel.
func (v *Verifier) SetFault(s verify.Set) (string, error) {
	names := v.kernel.maps.Names
	want := plan.NameText(string(s.ID))
	if v.dataplane.state.names.sets[s.Number] != s.ID || names.Sets.IsUnwritten(s.Number) {
		return "", nil
	}
	text, _, err := names.Set(s.Number)
	if err != nil || text == want {
		return "", err
	}
	return fmt.Sprintf("map %s calls set %d %q, should call it %q", bpf.MargayMapSetNames, s.Number, text, want), nil
}

// ClassSets implements verify.Kernel.
func (v *Verifier) ClassSets() (map[uint32][]uint32, error) {
	return bpfmaps.SetsOfClasses(v.kernel.maps.ClassSets)
}

// SetsOf implements verify.Kernel.
func (v *Verifier) SetsOf(class uint32) (numbers []uint32, err error) {
	highest := uint32(0)
	for n := range v.dataplane.state.names.sets {
		highest = max(highest, n)
	}
	m := v.kernel.maps.Map(bpf.MargayMapClassSets)
	var bits bpf.SetBits
	chunkSize := uint32(len(bits.Bits) * 64)
	for chunk := uint32(0); chunk <= highest/chunkSize; chunk++ {
		bits = bpf.SetBits{}
		err := m.Lookup(&bpf.ClassChunk{Class: class, Chunk: chunk}, &bits)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("read map %s of class %d: %w", bpf.MargayMapClassSets, class, err)
		}
		for i := range chunkSize {
			if bits.Bits[i/64]>>(i%64)&1 != 0 {
				numbers = append(numbers, chunk*chunkSize+i)
			}
		}
	}
	return numbers, nil
}
