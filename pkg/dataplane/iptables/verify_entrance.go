package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// Addresses that no endpoint has. They are the other ends of packets that are walked up to the slot that judges them; the class of
// the other end matters only in the slot.
var (
	elsewhere4 = netip.MustParseAddr("192.0.2.1")
	elsewhere6 = netip.MustParseAddr("2001:db8::1")
)

// policyKey identifies the policies of one direction of an endpoint, for IPv4 and IPv6.
type policyKey struct {
	slots   [2]uint32 // 0: there is none
	written [2]uint64 // by the journal
}

// entrances are the ways of first packets of an endpoint's addresses in one direction, from FORWARD on.
type entrances []entrance

// entrance is the way of one packet.
type entrance struct {
	addr netip.Addr
	slot uint32 // the slot that judges it; 0: no slot does
	end  string // with slot 0: where the packet ended; otherwise empty
}

func (e entrances) key() (k policyKey) {
	for _, at := range e {
		if n := place(at.addr); k.slots[n] == 0 {
			k.slots[n] = at.slot
		}
	}
	return k
}

// place returns the index of an address's IP version in a policyKey.
func place(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// faults describes the ways that do not lead to the slot of the endpoint's other addresses.
func (e entrances) faults(d model.Direction) (faults []string) {
	key := e.key()
	for _, at := range e {
		switch {
		case at.end != "":
			faults = append(faults, fmt.Sprintf("%s of %s is not judged: %s", d, at.addr, at.end))
		case at.slot != key.slots[place(at.addr)]:
			faults = append(faults, fmt.Sprintf("%s of %s is judged by slot %d, that of another address by slot %d", d, at.addr, at.slot, key.slots[place(at.addr)]))
		}
	}
	return faults
}

// enter walks first packets of all addresses of an endpoint.
func (r *reading) enter(p *model.EndpointPolicy, d model.Direction) (all entrances) {
	for _, a := range p.Addrs {
		at := entrance{addr: a}
		at.slot, at.end = r.slot(r.first(a, p.Iface, d))
		all = append(all, at)
	}
	return all
}

// first returns a packet that opens a flow of an endpoint.
func (r *reading) first(a netip.Addr, iface string, d model.Direction) walk.Packet {
	other := elsewhere4
	if a.Is6() {
		other = elsewhere6
	}
	p := walk.Packet{In: iface, Out: r.uplink(), Src: a, Dst: other, Protocol: model.ProtoTCP, TCP: walk.SYN,
		Ports: walk.Ports{Src: 1, Dst: 1}, Connection: &walk.Connection{Protocol: model.ProtoTCP}}
	if d == model.Ingress {
		p.In, p.Out, p.Src, p.Dst = p.Out, p.In, p.Dst, p.Src
	}
	return p
}

// uplink returns the name of an interface that does not have the prefix of workload interfaces.
func (r *reading) uplink() string {
	if strings.HasPrefix("eth0", r.config.prefix) {
		return "up0"
	}
	return "eth0"
}

// slot returns the slot that judges a packet in FORWARD; 0: no slot does, and end is where the packet ended, there or before
// routing.
func (r *reading) slot(p walk.Packet) (slot uint32, end string) {
	f := r.of[familyOf(p.Src)]
	if end := f.dropped(p); end != "" {
		return 0, end
	}
	result, err := walk.Walk([]walk.Stage{{Table: f.table, Chain: "FORWARD"}}, p, f)
	if err != nil {
		result, err = f.behindOthers(p, err)
	}
	if err != nil {
		return 0, err.Error()
	}
	for _, step := range result.Path {
		target, _ := ruleset.Target(f.rule(step))
		if number, ok := f.slotOf(target); ok {
			return number, ""
		}
	}
	return 0, f.where(result)
}

// dropped returns where a chain of ours drops a packet before routing; empty: none does. Drops by chains of others are ignored.
func (f *familyRead) dropped(p walk.Packet) (end string) {
	p.Out = ""
	p.Others.BPF = func(string) bool { return false } // it has no options
	r, err := walk.Walk([]walk.Stage{{Table: f.raw, Chain: "PREROUTING"}, {Table: f.table, Chain: "PREROUTING"}}, p, f)
	n := len(r.Path)
	if err != nil || n == 0 || r.Verdict != walk.Drop || !strings.HasPrefix(r.Path[n-1].Chain, f.names.Prefix()+"-") {
		return ""
	}
	return f.where(r)
}

// behindOthers walks a packet from our chain on, if the walk failed at a rule of others whose meaning is not known.
func (f *familyRead) behindOthers(p walk.Packet, err error) (walk.Result, error) {
	var unknown *walk.UnknownError
	if !errors.As(err, &unknown) || strings.HasPrefix(unknown.Chain, f.names.Prefix()+"-") {
		return walk.Result{}, err
	}
	return walk.Walk([]walk.Stage{{Table: f.table, Chain: f.names.Chain("FORWARD")}}, p, f)
}

// slotOf returns the number of the slot whose first chain has the name.
func (f *familyRead) slotOf(chain string) (uint32, bool) {
	number, ok := strings.CutPrefix(chain, f.names.Chain("s"))
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil
}

// where describes the end of a walk.
func (f *familyRead) where(r walk.Result) string {
	verb := map[walk.Verdict]string{walk.Accept: "accepts it", walk.Drop: "drops it", walk.Reject: "rejects it", walk.Returned: "lets it fall off"}[r.Verdict]
	if len(r.Path) == 0 {
		return "no rule matches it"
	}
	last := r.Path[len(r.Path)-1]
	if last.Index < 0 {
		return fmt.Sprintf("the policy of chain %s %s", last.Chain, verb)
	}
	return fmt.Sprintf("chain %s, rule %d (%s), %s", last.Chain, last.Index+1, f.rule(last), verb)
}
