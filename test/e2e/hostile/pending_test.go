package hostile

// pending reports whether that a packet arrived wrongly is a hole that is known and being closed. Each case goes with its
// fix; when none is left, so does this file.
func pending(d dissected) bool {
	about, _ := dissect(d.body)
	switch {
	case d.isNeighbour(): // with another's source
		return true
	case d.isError() && about.Dst.IsLinkLocalUnicast(): // the node answers such
		return true
	}
	return false
}
