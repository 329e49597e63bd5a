package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/dataplane/nodewatch"
	"github.com/margay-project/margay/pkg/ipsets"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// iptablesPatience bounds the time for finding and trying iptables, the wait for the lock included.
const iptablesPatience = 30 * time.Second

// openIPTables opens the iptables dataplane.
func openIPTables(c config.Config, log *slog.Logger) (*Dataplane, error) {
	ctx, cancel := context.WithTimeout(context.Background(), iptablesPatience)
	defer cancel()
	parts, checks := openIPTablesParts(ctx, c.IptablesBackend)
	if err := missing(checks); err != nil {
		return nil, errors.Join(err, parts.close())
	}
	sole, err := xtables.Sole()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; --instance is for agents of several namespaces", err), parts.close())
	}
	defer func() {
		if err != nil {
			sole.Close()
		}
	}()
	node, err := nodewatch.Open(c.InterfacePrefix, log)
	if err != nil {
		return nil, errors.Join(err, parts.close())
	}
	_, noSCTP := os.Stat(sctpSetting)
	others := func(ctx context.Context) []*xtables.Tools {
		all, _ := IPTablesTools(ctx) // a backend that does not work here has no chains in force
		return all
	}
	kernel := iptables.Kernel{Tools: parts.tools, Others: others, Sets: parts.sets, Lists: parts.lists, Flows: parts.flows, Node: node, Routes: routesOut(log),
		SCTPUntracked: noSCTP != nil, SourceRoutes: followsSourceRoutes, Resets: resetsGroup, Events: eventsGroup}
	after, err := afterBPF(c, &kernel, parts.flows, log)
	if err != nil {
		node.Close()
		return nil, errors.Join(err, parts.close())
	}
	d, err := iptables.Open(ctx, c.Config, kernel, log)
	if err != nil {
		node.Close()
		return nil, errors.Join(err, after.close(), parts.close())
	}
	watching, unwatch := context.WithCancel(context.Background())
	routes, err := attach.WatchRoutes(watching, attach.WatchOptions{Logger: log}, c.InterfacePrefix)
	if err != nil {
		unwatch()
		return nil, errors.Join(err, d.Close(), after.close(), parts.close())
	}
	go resetReceivers(watching, log)
	go d.Limiter(parts.limited).Run(watching)
	next := &successor{Dataplane: d}
	if after != nil {
		next.remove, next.release = after.remove, after.close
	}
	copies := &copyCounts{}
	return &Dataplane{Dataplane: next, Inspect: d.Inspector(), Verify: d.Verifier(), Observe: d.Observe, decide: d.Decide, copies: copies, Counters: d.Counters(copies.counts), Routes: routes,
		Stop: func() { unwatch(); sole.Close() }}, nil
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

// findIPTables finds the commands of a backend that works here. auto: of the first one that works, legacy before nft. The backend of the
// node's other rules does not matter, since policy has chains of its own.
func findIPTables(ctx context.Context, backend string) (*xtables.Tools, error) {
	backends := []xtables.Backend{xtables.Legacy, xtables.NFT}
	if backend != "auto" {
		backends = []xtables.Backend{xtables.Backend(backend)}
	}
	var errs []error
	for _, b := range backends {
		tools, err := xtables.Find(ctx, b)
		if err == nil {
			err = tools.Prove(ctx, makeProofSets)
		}
		if err == nil {
			return tools, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
