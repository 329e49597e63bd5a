package model

import "net/netip"

// noSources are the ranges that no packet from an endpoint may have as its source, whatever the endpoint lists. The programs in
// the kernel have the same.
var noSources = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "addresses of the network 0"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved addresses"},
	{netip.MustParsePrefix("::/96"), "reserved addresses"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped addresses"},
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
}

// NeverASource says what a prefix consists of from which no endpoint may send, whatever it lists: "loopback addresses". Empty:
// it may send from some addresses of the prefix.
func NeverASource(p netip.Prefix) string {
	for _, r := range noSources {
		if p.Addr().BitLen() == r.prefix.Addr().BitLen() && p.Bits() >= r.prefix.Bits() && r.prefix.Contains(p.Addr()) {
			return r.what
		}
	}
	return ""
}
