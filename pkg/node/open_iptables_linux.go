package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/dataplane/nodewatch"
	"github.com/margay-project/margay/pkg/ipsets"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// iptablesPatience bounds the time for finding and trying iptables, the wait for the lock included.
const iptablesPatience = 30 * time.Second

// composeIPTables opens the iptables dataplane.
func composeIPTables(c config.Config, h *held, log *slog.Logger) (*Dataplane, error) {
	ctx, cancel := context.WithTimeout(context.Background(), iptablesPatience)
	defer cancel()
	parts, checks := openIPTablesParts(ctx, c.IptablesBackend, h)
	if err := missing(checks); err != nil {
		return nil, err
	}
	if parts.unused != nil {
		log.Warn("the backend legacy of iptables is installed and does not work: chains are written with nft", "why", oneLine(parts.unused))
	}
	if unlike := parts.tools.Unlike(); unlike != "" {
		log.Warn("this version of iptables-nft writes rules in a form that is not known: if somebody alters rules with nft in a way that iptables does not print, that is not found",
			"expression", unlike)
	}
	sole, err := xtables.Sole()
	if err != nil {
		return nil, fmt.Errorf("%w; --instance is for agents of several namespaces", err)
	}
	h.add(sole.Close)
	watch, err := nodewatch.Open(c.InterfacePrefix, log)
	if err != nil {
		return nil, err
	}
	h.add(func() error {
		watch.Close()
		return nil
	})
	kernel := parts.kernel(watch, log)
	remove, err := afterBPF(c, h, &kernel, parts.flows, log)
	if err != nil {
		return nil, err
	}
	d, err := iptables.Open(ctx, c.Config, kernel, log)
	if err != nil {
		return nil, err
	}
	h.add(d.Close)
	watching, routes, err := watchRoutes(c, h, log)
	if err != nil {
		return nil, err
	}
	go resetReceivers(watching, log)
	table := conntrack.OpenLater()
	go limit(watching, d.Limiter(table), table)
	copies := &copyCounts{}
	return &Dataplane{Dataplane: &successor{Dataplane: d, remove: remove}, Inspect: d.Inspector(), Verify: d.Verifier(), Observe: d.Observe,
		Counters: d.Counters(copies.counts), Routes: routes, Looks: looks(iptablesMarks(c), ipvsBesideIPTables),
		records: recordsOfCopies(d.Decide, copies)}, nil
}

// kernel returns the kernel as the iptables dataplane needs it.
func (p *iptablesParts) kernel(watch *nodewatch.Watch, log *slog.Logger) iptables.Kernel {
	_, noSCTP := os.Stat(sctpSetting)
	others := func(ctx context.Context) []*xtables.Tools {
		all, _ := IPTablesTools(ctx) // chains of a backend that does not work stay, as was configured
		return all
	}
	return iptables.Kernel{Tools: p.tools, Others: others, Sets: p.sets, Lists: p.lists, Flows: p.flows, Node: watch, Routes: routesOut(log), Present: attach.Present,
		SCTPUntracked: noSCTP != nil, SourceRoutes: followsSourceRoutes, Resets: resetsGroup, Events: eventsGroup}
}

// sctpSetting is there if the kernel's conntrack knows SCTP.
const sctpSetting = "/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established"

// followsSourceRoutes reports whether the kernel may follow source routes of IPv4 packets: on no interface if this is 0.
func followsSourceRoutes() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/accept_source_route")
	return err != nil || strings.TrimSpace(string(text)) != "0"
}

// makeProofSets makes the sets that a proof of iptables refers to.
func makeProofSets() error {
	sets, err := ipsets.Open()
	if err != nil {
		return err
	}
	return errors.Join(sets.Create(ipsets.Spec{Name: xtables.ProofSet(xtables.V4), Type: ipsets.NetInterface, Family: ipsets.IPv4}),
		sets.Create(ipsets.Spec{Name: xtables.ProofSet(xtables.V6), Type: ipsets.NetInterface, Family: ipsets.IPv6}), sets.Close())
}

// findIPTables finds the commands of a backend that works here. auto: legacy, or nft if legacy does not work and no chains of an earlier
// agent are in its tables. unused is why an installed legacy is not used. The backend of the node's other rules does not matter, since policy
// has chains of its own.
func findIPTables(ctx context.Context, backend string) (tools *xtables.Tools, unused, err error) {
	if backend != "auto" {
		tools, err = proveIPTables(ctx, xtables.Backend(backend))
		return tools, nil, err
	}
	tools, unused = proveIPTables(ctx, xtables.Legacy)
	if unused == nil {
		return tools, nil, nil
	}
	left, err := iptables.LegacyLeft()
	if err != nil {
		return nil, nil, errors.Join(unused, err)
	}
	if left {
		return nil, nil, fmt.Errorf("%w, which does not work now: make it work, or enforce beside them with --iptables-backend nft: %w", errLegacyLeft, unused)
	}
	if tools, err = proveIPTables(ctx, xtables.NFT); err != nil {
		return nil, nil, errors.Join(unused, err)
	}
	if errors.Is(unused, exec.ErrNotFound) { // not installed: nft was meant
		unused = nil
	}
	return tools, unused, nil
}

var errLegacyLeft = errors.New("chains of an earlier agent are in force in tables of the backend legacy")

// proveIPTables finds the commands of one backend and proves that it works here.
func proveIPTables(ctx context.Context, backend xtables.Backend) (*xtables.Tools, error) {
	tools, err := xtables.Find(ctx, backend)
	if err != nil {
		return nil, err
	}
	if err := tools.Prove(ctx, makeProofSets); err != nil {
		return nil, err
	}
	return tools, nil
}
