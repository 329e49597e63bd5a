package corpus

import (
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// The generators draw from small pools, so that selectors, prefixes and ports collide all the time, and are shrunk by
// rapid towards few and simple objects.

// prefixes are what network sets and rules choose from: nested, adjacent, of odd lengths, both families.
var prefixes = parsePrefixes(
	"10.0.0.0/24", "10.0.0.0/29", "10.0.0.0/30", "10.0.0.2/31", "10.0.0.3/32", "10.0.0.4/30", "10.0.0.0/8",
	"203.0.113.0/24", "203.0.113.128/25", "203.0.113.7/32", "128.0.0.0/1", "0.0.0.0/0", "192.168.0.0/31",
	"fd00::/64", "fd00::/125", "fd00::2/127", "fd00::3/128", "2001:db8::/32", "2001:db8:8000::/33",
	"2001:db8::7/128", "8000::/1", "::/0", "fd00:192::/32",
)

// outside are addresses that belong to no endpoint, at and beside edges of prefixes.
var outside = parseAddrs(
	"203.0.113.7", "203.0.113.6", "203.0.113.127", "203.0.113.128", "127.255.255.255", "128.0.0.0", "10.0.0.200",
	"10.0.1.0", "0.0.0.0", "255.255.255.255", "11.0.0.0",
	"2001:db8::7", "2001:db8::6", "2001:db8:7fff::1", "2001:db8:8000::", "7fff::1", "fe80::1", "fd00::ffff", "::",
	"fd01::1",
)

// numbers are ports: edges of ranges, and a few in between.
var numbers = []uint16{0, 1, 53, 79, 80, 81, 255, 256, 443, 1023, 1024, 5432, 8079, 8080, 9000, 9255, 9256, 32768, 65534, 65535}

func parsePrefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t).Masked())
	}
	return out
}

func parseAddrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// chance is true once in n draws; it shrinks to false.
func chance(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// some draws up to n values of the pool; it may repeat them.
func some[T any](t *rapid.T, pool []T, n int, label string) []T {
	out := rapid.SliceOfN(rapid.SampledFrom(pool), 0, n).Draw(t, label)
	if len(out) == 0 {
		return nil
	}
	return out
}

func one[T any](t *rapid.T, pool []T, label string) T {
	return rapid.SampledFrom(pool).Draw(t, label)
}

// upTo returns 0..n-1 for a drawn n between lo and hi.
func upTo(t *rapid.T, lo, hi int, label string) []int {
	out := make([]int, rapid.IntRange(lo, hi).Draw(t, label))
	for i := range out {
		out[i] = i
	}
	return out
}

// DrawChange draws the updates that lead from the objects of one state to exactly those of another, in any order, in
// batches.
func DrawChange(t *rapid.T, from, to []model.Update) [][]model.Update {
	last := map[model.Key]model.Update{}
	for _, u := range from {
		k, _ := model.KeyOf(u)
		last[k] = model.Absent(u)
	}
	var order []model.Key
	for _, u := range slices.Concat(from, to) {
		k, _ := model.KeyOf(u)
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
	}
	for _, u := range to {
		k, _ := model.KeyOf(u)
		last[k] = u
	}
	var batches [][]model.Update
	for i, k := range rapid.Permutation(order).Draw(t, "order") {
		if i == 0 || chance(t, 3, "flush") {
			batches = append(batches, nil)
		}
		batches[len(batches)-1] = append(batches[len(batches)-1], last[k])
	}
	return batches
}

// Probe is a packet and the leg that judges it.
type Probe struct {
	Endpoint  model.EndpointID
	Direction model.Direction
	Packet    model.Packet
	Forwarded bool // no node has made the packet, though its source may be one's address
}

// Line is the probe as a line of expect.
func (p Probe) Line(v model.Verdict) string {
	if p.Direction == model.Egress {
		return Line(&p.Endpoint, nil, p.Packet, v)
	}
	return Line(nil, &p.Endpoint, p.Packet, v)
}

// DrawProbes draws remote addresses and protocol fields and returns all of their combinations with both directions of
// every endpoint in the updates. It prefers what the objects speak of: members and their neighbours, edges of prefixes
// and ranges, types and codes.
func DrawProbes(t *rapid.T, updates []model.Update) []Probe {
	h := collectHints(updates)
	ids := slices.SortedFunc(maps.Keys(h.endpoints), model.EndpointID.Compare)
	remotes := rapid.SliceOfNDistinct(rapid.SampledFrom(h.addrs), 4, 20, rapid.ID[netip.Addr]).Draw(t, "remotes")
	l4 := rapid.SliceOfN(rapid.Custom(h.drawL4), 3, 12).Draw(t, "l4")
	var probes []Probe
	for _, id := range ids {
		for _, own := range h.own(id) {
			for _, remote := range remotes {
				if remote.Is4() != own.Is4() {
					continue
				}
				for _, pkt := range l4 {
					probes = append(probes, probe(id, model.Ingress, pkt, remote, own), probe(id, model.Egress, pkt, own, remote))
				}
			}
		}
	}
	return probes
}

func probe(id model.EndpointID, dir model.Direction, pkt model.Packet, src, dst netip.Addr) Probe {
	pkt.Src, pkt.Dst = src, dst
	isICMP := src.Is4() && pkt.Protocol == model.ProtoICMP || src.Is6() && pkt.Protocol == model.ProtoICMPv6
	if !isICMP {
		pkt.ICMPType, pkt.ICMPCode = 0, 0
	}
	return Probe{Endpoint: id, Direction: dir, Packet: pkt}
}

var (
	icmpTypes = []uint8{0, 3, 8, 128, 255}
	icmpCodes = []uint8{0, 1, 4, 255}
)
