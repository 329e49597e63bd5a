package conntrack

import "errors"

// bucketsFile has the number of buckets of the table, of all network namespaces.
const bucketsFile = "/proc/sys/net/netfilter/nf_conntrack_buckets"

// mostPasses is how often the table is read for one edit. Only an operator resizes it, and seldom.
const mostPasses = 3

// ErrResized says that the kernel's table was resized each time while it was read, so entries may have been missed.
var ErrResized = errors.New("the table of tracked connections was resized while it was read, several times in a row")

// unlessResized performs a pass over the table, again if the number of buckets is another one after it. Where the number cannot
// be read, one pass is all.
func unlessResized(buckets func() (uint32, error), pass func() error) error {
	before, err := buckets()
	if err != nil {
		return pass()
	}
	for range mostPasses {
		if err := pass(); err != nil {
			return err
		}
		after, err := buckets()
		if err != nil || after == before {
			return nil
		}
		before = after
	}
	return ErrResized
}
