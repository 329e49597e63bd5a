package bpfmaps

import (
	"fmt"
	"math/bits"

	"github.com/margay-project/margay/bpf"
)

// Shares are what each share of the flow tables has taken, by number; the last one is what all have in common.
func (f *Flows) Shares() ([]bpf.Share, error) {
	counts := make([]bpf.Share, 0, bpf.Shares+1)
	for part, err := range readAll[uint32, bpf.Share](f.shares) {
		if err != nil {
			return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapShares, err)
		}
		counts = append(counts, part.values...)
	}
	return counts, nil
}

// Common is how full the room is that all shares have in common for open flows, by what Shares has returned.
func (f *Flows) Common(shares []bpf.Share) MapUse {
	var limits bpf.Config
	divide(&limits, min(f.ct4.MaxEntries(), f.ct6.MaxEntries()))
	taken := int32(shares[bpf.Shares].Open) // programs lower it before they raise it, so it may be below 0 for a moment
	return MapUse{Entries: min(uint32(max(0, taken)), limits.OpenCommon), Max: limits.OpenCommon}
}

// divide fills in how flow tables of so many entries are divided: a quarter to the open flows of shares, a quarter to
// their half-open ones, three eighths to further open flows and an eighth to further half-open ones. Both families
// together have at most what fits into the table of one, so no table is ever full.
func divide(c *bpf.Config, entries uint32) {
	c.OpenShare = max(1, entries/4/bpf.Shares)
	c.OpenCommon = entries / 8 * 3
	c.HalfShare = powerOfTwo(entries/4/bpf.Shares, bpf.HalfShare)
	c.HalfCommon = powerOfTwo(entries/8, bpf.HalfCommon)
}

// powerOfTwo is the largest power of two that is at most n and limit, or 1.
func powerOfTwo(n, limit uint32) uint32 {
	return 1 << max(0, bits.Len32(min(n, limit))-1)
}
