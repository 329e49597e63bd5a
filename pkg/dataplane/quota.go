package dataplane

// tellQuota tells of endpoints that wanted more open flows than their share since the last call, and forgets the counts
// of interfaces that are gone.
func (d *BPF) tellQuota() error {
	counts, err := d.maps.OpenFlows()
	if err != nil {
		return err
	}
	here := map[uint32]bool{}
	for id, ep := range d.bound {
		if ep.ifindex == 0 {
			continue
		}
		here[ep.ifindex] = true
		if c := counts[ep.ifindex]; c.Refused != ep.refused {
			d.log.Warn("an endpoint has as many open flows as it may; further ones may be forgotten while they live",
				"endpoint", id, "open", int32(c.Open), "refused", c.Refused-ep.refused)
			ep.refused = c.Refused
		}
	}
	return d.maps.ForgetOpenFlows(func(ifindex uint32) bool { return here[ifindex] })
}
