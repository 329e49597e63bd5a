package kubelet

import (
	"errors"
	"net/netip"
	"sync"
)

// pool gives out pairs of addresses, one of each prefix, and those that come back only when none is fresh, the one that
// was free for longest first.
type pool struct {
	mu    sync.Mutex
	fresh []netip.Addr // the next of each prefix
	in    []netip.Prefix
	free  [][]netip.Addr
}

// newPool leaves out the network's own address and the next, as the lab does, and the last one.
func newPool(prefixes []netip.Prefix) *pool {
	p := &pool{in: prefixes}
	for _, prefix := range prefixes {
		p.fresh = append(p.fresh, prefix.Masked().Addr().Next().Next())
	}
	return p
}

func (p *pool) allocate() ([]netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := true
	for i, a := range p.fresh {
		left = left && p.in[i].Contains(a) && p.in[i].Contains(a.Next())
	}
	if left {
		taken := append([]netip.Addr(nil), p.fresh...)
		for i, a := range p.fresh {
			p.fresh[i] = a.Next()
		}
		return taken, nil
	}
	if len(p.free) == 0 {
		return nil, errors.New("the node has no address left for another pod")
	}
	taken := p.free[0]
	p.free = p.free[1:]
	return taken, nil
}

// give takes addresses back. Those of other prefixes, which a test has chosen, belong to no pool.
func (p *pool) give(addrs []netip.Addr) {
	if len(addrs) != len(p.in) {
		return
	}
	for i, a := range addrs {
		if !p.in[i].Contains(a) {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, addrs)
}
