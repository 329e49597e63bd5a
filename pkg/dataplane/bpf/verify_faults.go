package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
	sum      bpfmaps.Sum
	known    bool
	compared bool     // Policy has read it, and altered, rules and texts hold
	altered  []string // maps
	rules    []bpf.Rule
	texts    []string // names of rules, parallel to rules
}

// expect notes what a slot should hold.
func (v *Verifier) expect(slot uint32) {
	seen := v.read[slot]
	if sum, known := v.dataplane.state.tables.slots.Sum(slot); sum != seen.sum {
		v.read[slot] = slotRead{sum: sum, known: known}
	}
}

// Faults implements verify.Kernel.
func (v *Verifier) Faults(id model.EndpointID) (part verify.Part, err error) {
	known := v.dataplane.state.endpoints
	ep := known.roster.bound[id]
	if ep == nil || ep.policy == nil || ep.ifindex == 0 {
		part.Skipped = "it has no interface any more"
		return part, nil
	}
	got, err := v.endpoint(ep.ifindex)
	if err != nil {
		return part, err
	}
	var faults []string
	if want, ok := known.entries.desired(ep, ep.ifindex); ok {
		faults = entryFaults(want, got)
	}
	stagedFault, err := mapFault(v.kernel.maps.Staged, v.kernel.maps.Map(bpf.MargayMapStaged), ep.ifindex)
	faults = append(faults, stagedFault...)
	if v.kernel.maps.Staged.IsUnwritten(ep.ifindex) {
		part.Skipped = "its staged policies are still to be written"
	}
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
		of, skipped := v.slotFaults(slot)
		faults, part.Skipped = append(faults, of...), cmp.Or(part.Skipped, skipped)
	}
	for _, text := range v.kernel.host.Faults(ep.ifindex) {
		faults = append(faults, "interface "+ep.policy.Iface+", "+text)
	}
	part.Faults = faults
	return part, err
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

// slotFaults are what is altered in a slot, though no packet may be judged otherwise, and in the names of its rules. skipped is why its
// content was not compared; empty: it was.
func (v *Verifier) slotFaults(slot uint32) (faults []string, skipped string) {
	if slot == 0 {
		return nil, "" // no policy
	}
	sum, known := v.dataplane.state.tables.slots.Sum(slot)
	if seen := v.read[slot]; !seen.compared || sum != seen.sum { // the agent has added rows to it since it was read
		v.read[slot] = slotRead{sum: sum, known: known}
		if _, err := v.readSlot(slot); err != nil {
			return nil, fmt.Sprintf("its policy in slot %d cannot be read: %v", slot, err)
		}
	}
	seen := v.read[slot]
	if !known {
		skipped = fmt.Sprintf("it is not known what slot %d was written with", slot)
	}
	if len(seen.altered) > 0 {
		faults = append(faults, fmt.Sprintf("slot %d is altered in %s", slot, strings.Join(seen.altered, ", ")))
	}
	names := v.kernel.maps.Names.Rules
	for i, text := range seen.texts[:min(len(seen.texts), mostNames)] {
		n := seen.rules[i].Id
		if want, ok := names.Get(n); ok && !names.IsUnwritten(n) && bpfmaps.NameText(want) != text {
			faults = append(faults, fmt.Sprintf("map %s calls rule %d %q, should call it %q", bpf.MargayMapRuleNames, n, text, bpfmaps.NameText(want)))
		}
	}
	return faults, skipped
}

// NodeFaults implements verify.Kernel.
func (v *Verifier) NodeFaults() ([]verify.Part, error) {
	faults := v.kernel.maps.PinFaults()
	foreign, err1 := v.kernel.endpoints.Foreign()
	for _, ifindex := range foreign {
		faults = append(faults, fmt.Sprintf("map %s has an entry of interface %d, which is no endpoint's", bpf.MargayMapEndpoints, ifindex))
	}
	generations, err2 := v.kernel.gens.Fault()
	if generations != "" {
		faults = append(faults, generations)
	}
	grace, err3 := v.kernel.graceFault(v.dataplane.config.MidFlowGrace)
	if grace != "" {
		faults = append(faults, grace)
	}
	sources, err4 := tablePart(v.kernel.maps.Addresses.Sources)
	staged, err5 := tablePart(v.kernel.maps.Staged)
	hooks := verify.Part{Name: "programs at netfilter's hooks"}
	if v.dataplane.state.interfaces.guarded {
		hooks.Faults = v.kernel.host.HookFaults()
	} else {
		hooks.Skipped = "the agent has not attached all of them yet"
	}
	parts := []verify.Part{{Name: "pins, endpoints, generations and the grace period", Faults: faults}, sources, staged, hooks}
	return parts, errors.Join(err1, err2, err3, err4, err5)
}

// tablePart compares all entries of a small map with the desired ones.
func tablePart[K, V comparable](t *bpfmaps.Table[K, V]) (verify.Part, error) {
	part := verify.Part{Name: "map " + t.Name()}
	got, err := t.Load()
	if n := len(t.Unwritten()); n > 0 {
		part.Skipped = fmt.Sprintf("entries of it are still to be written, %d of them", n)
	}
	faults := []string{}
	for k, want := range t.All() {
		if t.IsUnwritten(k) {
			delete(got, k)
			continue
		}
		if is, ok := got[k]; !ok || is != want {
			faults = append(faults, fmt.Sprintf("map %s key %+v has %+v, should have %+v", t.Name(), k, is, want))
		}
		delete(got, k)
	}
	for k, is := range got {
		if !t.IsUnwritten(k) {
			faults = append(faults, fmt.Sprintf("map %s has %+v for key %+v, should have no such entry", t.Name(), is, k))
		}
	}
	if err == nil {
		part.Faults = faults
	}
	return part, err
}

// Sets implements verify.Kernel.
func (v *Verifier) Sets() []verify.Set {
	s := v.dataplane.state
	return verify.NumberedSets(s.names.sets, func(yield func(map[model.SetID][]netip.Prefix) bool) {
		for id := range s.tables.list {
			if p := s.tables.program(id); p != nil && !yield(p.NetSets) {
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
	sets, err := bpfmaps.SetsOfClasses(v.kernel.maps.ClassSets)
	if err == nil {
		maps.Copy(sets, v.unrecorded)
	}
	return sets, err
}

// SetsOf implements verify.Kernel.
func (v *Verifier) SetsOf(class uint32) (numbers []uint32, err error) {
	if sets, ok := v.dataplane.state.classes.unrecorded[class]; ok {
		return sets, nil
	}
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
