package iptables

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Elsewhere returns the other backend if one of its tables raw, mangle and filter in this network namespace has a chain whose name begins with one of
// the prefixes; empty: none has. It reads the kernel, without commands and without the lock, and makes no table.
func (t *Tools) Elsewhere(prefixes ...string) (Backend, error) {
	m, real := t.kernel.(*machine)
	if !real {
		return "", nil
	}
	other, has := NFT, nftChains
	if m.backend == NFT {
		other, has = Legacy, LegacyChains
	}
	for _, prefix := range prefixes {
		if found, err := has(prefix); found || err != nil {
			return other, err
		}
	}
	return "", nil
}

// nftChains is LegacyChains for nftables.
func nftChains(prefix string) (found bool, err error) {
	for _, family := range Families {
		for _, table := range []string{"raw", "mangle", "filter"} {
			chains, err := chainsOf(family, table)
			if refused, ok := errors.AsType[*nfnl.Refused](err); ok && refused.Code == int(unix.EINVAL) {
				return false, nil // the kernel has no nftables
			}
			if err != nil {
				return false, err
			}
			for _, chain := range chains {
				if strings.HasPrefix(chain.name, prefix) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
