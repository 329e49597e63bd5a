package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/ipsets"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// ipsetModule exists once the kernel has IP sets, loaded as a module or built in.
const ipsetModule = "/sys/module/ip_set"

// IPTablesLeft reports whether the iptables dataplane has left anything in this network namespace. It loads no module.
func IPTablesLeft() (bool, error) {
	if _, err := os.Stat(ipsetModule); err != nil {
		return false, nil // without the module no set was ever made
	}
	sets, err := ipsets.Open()
	if err != nil {
		return false, err
	}
	found, err := iptables.Found(sets)
	return found, errors.Join(err, sets.Close())
}

// IPTablesPolicy reports whether policy is enforced with iptables in this network namespace, and whether the agent that enforces it runs,
// whatever its instance and socket.
func IPTablesPolicy() (enforced, running bool, err error) {
	if enforced, err = IPTablesLeft(); err == nil {
		running, err = xtables.Reserved()
	}
	return enforced, running, err
}

// removeIPTables removes the chains, sets and marks of the iptables dataplane in this network namespace, with the commands of each
// backend that works here.
func removeIPTables(ctx context.Context) (iptables.Removed, error) {
	if found, err := IPTablesLeft(); !found || err != nil {
		return iptables.Removed{}, err
	}
	tools, err := IPTablesTools(ctx)
	if err != nil {
		return iptables.Removed{}, err
	}
	sets, err := ipsets.Open()
	if err != nil {
		return iptables.Removed{}, err
	}
	flows, err := conntrack.Open()
	if err != nil {
		return iptables.Removed{}, errors.Join(err, sets.Close())
	}
	removed, err := iptables.Remove(ctx, tools, sets, flows)
	return removed, errors.Join(err, flows.Close(), sets.Close())
}

// IPTablesTools returns the commands of each backend that works here. It fails if none does, and if legacy does not while its tables have chains
// of an agent, which these commands could not read or remove.
func IPTablesTools(ctx context.Context) ([]*xtables.Tools, error) {
	var all []*xtables.Tools
	var errs []error
	for _, b := range []xtables.Backend{xtables.Legacy, xtables.NFT} {
		tools, err := proveIPTables(ctx, b)
		if err != nil {
			if errs = append(errs, err); b == xtables.Legacy {
				left, unknown := iptables.LegacyLeft()
				if left || unknown != nil {
					return nil, errors.Join(unknown, fmt.Errorf("%w, which does not work now: %w", errLegacyLeft, err))
				}
			}
			continue
		}
		all = append(all, tools)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the iptables dataplane has left chains in force here, and removing them needs iptables: %w", errors.Join(errs...))
	}
	return all, nil
}
