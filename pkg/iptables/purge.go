package iptables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// iptables-nft does not read or write a table as it is if somebody has replaced a built-in chain of it. What agents have there is removed in
// the terms of nftables then. The chain that is misplaced stays, since it may have rules of others.

// Misplaced returns the first built-in chain of a table that is misplaced; nil: none is. From then on the Tools read that table as empty.
func (t *Tools) Misplaced(family Family, table string) (*MisplacedError, error) {
	m, real := t.kernel.(*machine)
	if !real {
		return nil, nil
	}
	err := m.misplaced(family, table, nil)
	found, ok := errors.AsType[*MisplacedError](err)
	if !ok {
		return nil, err
	}
	m.tolerated = append(m.tolerated, key(family, table))
	return found, nil
}

// Purge removes the chains of a table of nftables that are ours, and the rules that go to them, by netlink. It returns the number of chains.
func (t *Tools) Purge(family Family, table string, ours func(chain string) bool) (removed int, err error) {
	all, err := chainsOf(family, table)
	if err != nil {
		return 0, err
	}
	handles := map[string][]uint64{}
	var flushes, deletions []nfnl.Request
	for _, chain := range all {
		if !ours(chain.name) {
			if handles[chain.name], err = t.kernel.handles(family, table, chain.name, ours); err != nil {
				return 0, err
			}
			continue
		}
		var rules, name nfnl.Encoder
		rules.String(unix.NFTA_RULE_TABLE, table)
		rules.String(unix.NFTA_RULE_CHAIN, chain.name)
		name.String(unix.NFTA_CHAIN_TABLE, table)
		name.String(unix.NFTA_CHAIN_NAME, chain.name)
		request := nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: unix.NFT_MSG_DELRULE, Family: key(family, table).family, Attributes: rules.Bytes()}
		flushes = append(flushes, request)
		request.Command, request.Attributes = unix.NFT_MSG_DELCHAIN, name.Bytes()
		deletions = append(deletions, request)
	}
	if err := t.kernel.discard(family, table, handles); err != nil || len(deletions) == 0 {
		return 0, err
	}
	conn, err := nfnl.Open()
	if err != nil {
		return 0, err
	}
	const most = 1000 // requests of one transaction, which is one message to the kernel
	for part := range slices.Chunk(append(flushes, deletions...), most) {
		if err := conn.Transaction(part...); err != nil {
			return 0, errors.Join(fmt.Errorf("delete chains of %v table %s by netlink: %w", family, table, err), conn.Close())
		}
	}
	return len(deletions), conn.Close()
}
