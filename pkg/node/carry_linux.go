package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/conntrack"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/handover"
	"github.com/margay-project/margay/pkg/ipsets"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// readEnforced reads the policy that the iptables dataplane enforces.
func readEnforced(ctx context.Context, tools []*xtables.Tools) (*iptables.Enforced, error) {
	sets, err := ipsets.Open()
	if err != nil {
		return nil, err
	}
	enforced, err := iptables.ReadEnforced(ctx, tools, sets)
	return enforced, errors.Join(err, sets.Close())
}

// carryToBPF returns the function that converts connections which the iptables dataplane has judged into flows of BPF maps.
func carryToBPF(enforced *iptables.Enforced, config config.Config, log *slog.Logger) bpfplane.Carry {
	return func(to bpfplane.Successor) error {
		now, _, err := bpfmaps.FlowClock()
		if err != nil {
			return err
		}
		kernel, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer kernel.Close()
		sources, err := newCarriedSources(to.Sources)
		if err != nil {
			return err
		}
		if err := endOfFormer(kernel, enforced, to); err != nil {
			return err
		}
		place := func(a netip.Addr) handover.Place {
			p := handover.Place{Interface: to.Interfaces[a], Node: slices.Contains(to.Node, a)}
			if p == (handover.Place{}) {
				p.Interface = sources.owner(a)
			}
			return p
		}
		// same reports whether an address has the owner that it had when policy was enforced last: an agent may have been away. Of a
		// further source that is not known. What policy of another owner allowed is not kept.
		same := func(a netip.Addr) bool {
			return enforced.Locals[a] == to.Names[a] && (to.Names[a] != "" || place(a).Interface == 0)
		}
		flows := handover.Flows{Stamp: to.Stamp, Keep: config.KeepExisting, Now: now,
			Place: place,
			Mark: func(e conntrack.Entry) handover.Mark {
				c, _ := enforced.Read(e)
				kept := !config.KeepExisting || same(c.Opener.Src) && same(c.Responder.Src)
				return handover.Mark{Judged: c.Judged, Allowed: c.Current && !c.Denied && kept, Denied: c.Current && c.Denied, Turned: c.Turned}
			}}
		share := func(ifindex uint32) (uint32, bool) {
			number, ok := to.Shares[ifindex]
			return number, ok
		}
		added, err := handover.ToBPF(kernel, to.Flows, flows, bpfmaps.Room{Unused: to.Unused, Share: share, Quota: to.Quota})
		if added > 0 {
			log.Info("flows of the iptables dataplane are known", "flows", added)
		}
		return err
	}
}

// endOfFormer removes connections of addresses that have another endpoint than by the chains in force: a pod was replaced while no agent ran.
// The kernel's table knows addresses, not pods, so the new one would be reached by answers to what the former one has asked. The chains let
// the new endpoint begin none so far.
func endOfFormer(kernel *conntrack.Conn, enforced *iptables.Enforced, to bpfplane.Successor) error {
	reassigned := func(a netip.Addr) bool {
		return enforced.Locals[a] != to.Names[a] && (to.Names[a] != "" || to.Complete)
	}
	if maps.Equal(enforced.Locals, to.Names) {
		return nil
	}
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		if _, err := kernel.DeleteAddresses(family, reassigned); err != nil {
			return fmt.Errorf("end connections of addresses that have other endpoints now: %w", err)
		}
	}
	return nil
}

// learn adds the flows of the BPF dataplane to the kernel's conntrack.
func (l *replacedBPF) learn(kernel handover.Kernel, as iptables.Learned) error {
	if l.from == nil {
		return nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces, to know whose flows are kept: %w", err)
	}
	numbers := map[string]uint32{}
	for _, i := range interfaces {
		numbers[i.Name] = uint32(i.Index)
	}
	listed, err := l.from.Sources()
	if err != nil {
		return fmt.Errorf("read the further sources of endpoints: %w", err)
	}
	sources, err := newCarriedSources(listed)
	if err != nil {
		return err
	}
	stray := func(ifindex uint32, a netip.Addr) bool { return as.Owners[a] == "" && sources.stray(ifindex, a) }
	done, err := handover.ToKernel(l.from.Flows(), kernel, l.config.Timeouts, handover.Marks{Value: as.Mark.Value, Mask: as.Mark.Mask,
		Stray: stray, Lone: as.Lone.Value, Keep: as.Keep, Owner: func(a netip.Addr) uint32 { return numberOf(numbers, as.Owners[a]) }})
	if done.Left > 0 {
		l.log.Warn("there is no room for some flows of the BPF dataplane: each is judged as if it began", "flows", done.Left)
	}
	l.log.Info("flows of the BPF dataplane are known", "added", done.Inserted, "turnedRound", done.Turned, "ofFormerConnections", done.Former,
		"marked", done.Marked, "ofUnknownOpeners", done.Lone)
	return err
}

// numberOf returns the ifindex of the interface with a name; 0: the name is empty. An interface that does not exist has a number that no
// other has.
func numberOf(numbers map[string]uint32, name string) uint32 {
	number, ok := numbers[name]
	if name != "" && !ok {
		return math.MaxUint32
	}
	return number
}
