package iptables

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// dormant is what a Finding says of a table that the kernel asks nothing.
const dormant = "the table is dormant: none of its chains judges packets"

// tableFlags are the flags of a table of nftables (NFT_TABLE_F_*), as they were after a transaction.
type tableFlags struct{ generation, flags uint32 }

// tableDormant is NFT_TABLE_F_DORMANT: the chains of the table are not hooked.
const tableDormant = 1

// key names a table in messages of nftables.
func key(family Family, table string) nftTable {
	if family == V6 {
		return nftTable{unix.NFPROTO_IPV6, table}
	}
	return nftTable{unix.NFPROTO_IPV4, table}
}

// flagsOf returns the flags of a table; 0: there is no such table. It asks the kernel only if there was a transaction since it was asked.
func (t *transactions) flagsOf(table nftTable, generation uint32) (uint32, error) {
	if known, ok := t.flags[table]; ok && known.generation == generation {
		return known.flags, nil
	}
	var name nfnl.Encoder
	name.String(unix.NFTA_TABLE_NAME, table.name)
	request := nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: unix.NFT_MSG_GETTABLE, Family: table.family, Attributes: name.Bytes()}
	flags := uint32(0)
	err := t.questions.Get(request, func(m nfnl.Message) { flags = nfnl.Uint32(nfnl.Find(m.Attributes, unix.NFTA_TABLE_FLAGS)) })
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return 0, fmt.Errorf("ask nftables for the flags of table %s: %w", table.name, err)
	}
	t.flags[table] = tableFlags{generation, flags}
	return flags, nil
}

// activate makes the kernel ask the chains of a table again, and leaves its other flags as they are.
func (t *transactions) activate(family Family, table string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.listen(); err != nil {
		return err
	}
	generation, err := t.generation()
	if err != nil {
		return err
	}
	of := key(family, table)
	flags, err := t.flagsOf(of, generation)
	if err != nil || flags&tableDormant == 0 {
		return err
	}
	var wanted nfnl.Encoder
	wanted.String(unix.NFTA_TABLE_NAME, table)
	wanted.Uint32(unix.NFTA_TABLE_FLAGS, flags&^tableDormant)
	err = t.questions.Transaction(nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: unix.NFT_MSG_NEWTABLE, Family: of.family, Attributes: wanted.Bytes()})
	if err != nil {
		return fmt.Errorf("make the table active, which somebody has made dormant: %w", err)
	}
	return nil
}

// activate makes a dormant table judge packets again, in a transaction of its own: iptables has no words for that.
func (w *watch) activate(k kernel, family Family, table string) error {
	before, stampErr := k.stamp(family, table)
	if err := k.activate(family, table); err != nil {
		return err
	}
	after, err := k.stamp(family, table)
	w.wrote(before, after, 0, errors.Join(stampErr, err))
	return nil
}
