package dataplane

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// tellQuota tells of endpoints that wanted more open flows than their share since the last call.
func (d *BPF) tellQuota() error {
	shares, err := d.maps.Shares()
	if err != nil {
		return err
	}
	for id, ep := range d.bound {
		if ep.ifindex == 0 || ep.share == 0 || int(ep.share) > len(shares) {
			continue
		}
		if s := shares[ep.share-1]; s.Refused != ep.refused {
			d.log.Warn("an endpoint has as many open flows as it may; further ones may be forgotten while they live",
				"endpoint", id, "open", int32(s.Open), "refused", s.Refused-ep.refused)
			ep.refused = s.Refused
		}
	}
	return nil
}

// giveShare gives an endpoint a share of the flow tables, if it has none: one that no other endpoint has, and of those the
// one with the fewest flows of endpoints that are gone. If there are more endpoints than shares some have one together.
func (d *BPF) giveShare(ep *endpoint) error {
	if ep.share != 0 {
		return nil
	}
	shares, err := d.maps.Shares()
	if err != nil {
		return err
	}
	ep.share = freeShare(d.bound, shares[:bpf.Shares]) + 1
	ep.refused = shares[ep.share-1].Refused
	return nil
}

// freeShare is the number of the share that the fewest endpoints have, and of those the one with the fewest open flows.
func freeShare(bound map[model.EndpointID]*endpoint, shares []bpf.Share) uint32 {
	type use struct {
		number    uint32
		endpoints int
		open      int32
	}
	uses := make([]use, len(shares))
	for i := range uses {
		uses[i] = use{number: uint32(i), open: int32(shares[i].Open)}
	}
	for _, ep := range bound {
		if ep.share != 0 {
			uses[ep.share-1].endpoints++
		}
	}
	least := slices.MinFunc(uses, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.endpoints, b.endpoints), cmp.Compare(a.open, b.open), cmp.Compare(a.number, b.number))
	})
	return least.number
}
