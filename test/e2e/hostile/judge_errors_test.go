package hostile

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

const (
	errorAtMost = 8 + 40 + 8 // what is looked at of an error, from its own header on
	udpHeader   = 8
)

// weighError judges an error by its quote, of which a first fragment may have a part only: then by one that was sent in fragments.
func (j *judge) weighError(d dissected) string {
	wrong := j.weighQuote(d, d.body)
	if wrong == "" || !d.fragment || !testcluster.IPTables() {
		return wrong
	}
	for key, pieces := range j.pieces {
		// The node gives the fragments that it cuts of a reassembled IPv6 datagram another identification.
		same := key.src == d.Src && key.dst == d.Dst && (key.id == d.id || d.Src.Is6())
		if same && begins(pieces, d.payload) && j.completed(d, d.payload, pieces) {
			return ""
		}
	}
	return wrong
}

// begins reports whether one of the fragments that were sent is the first one that has arrived, which the node may have cut elsewhere.
func begins(pieces []dissected, payload []byte) bool {
	return slices.ContainsFunc(pieces, func(p dissected) bool {
		return p.offset == 0 && len(p.payload) > 0 && (bytes.HasPrefix(p.payload, payload) || bytes.HasPrefix(payload, p.payload))
	})
}

// completed reports whether fragments that were sent complete an error to one that may be.
func (j *judge) completed(d dissected, payload []byte, pieces []dissected) bool {
	if len(payload) >= errorAtMost {
		return j.weighQuote(d, payload[8:]) == ""
	}
	for _, p := range pieces {
		if p.offset > len(payload) || p.offset+len(p.payload) <= len(payload) {
			continue
		}
		if j.completed(d, slices.Concat(payload, p.payload[len(payload)-p.offset:]), pieces) {
			return true
		}
	}
	return len(payload) > 8 && j.weighQuote(d, payload[8:]) == ""
}

// weighQuote demands that an error is about a packet that its receiver sent to the attacker, of a flow that may be.
func (j *judge) weighQuote(d dissected, quote []byte) string {
	about, err := dissectQuoted(quote)
	if about.Src != d.Dst || about.Dst != d.Src {
		return fmt.Sprintf("it is an error about a packet from %s to %s", about.Src, about.Dst)
	}
	if err != nil || about.later {
		return "it is an error about a packet that cannot be known"
	}
	if j.opened[about.Packet] || j.allowed(turned(about.Packet)) {
		return ""
	}
	return fmt.Sprintf("it is an error about a flow that is none: %+v", about.Packet)
}

// isNodesError reports whether an error is a node's own, about an answer that its receiver gave to an attacker: the
// attacker did not answer the node's neighbour discovery, for example, because its own flood used up its rate. Its quote
// bears the token of the question. Only answers begin with the name of an echo server or are echo replies, which an error
// that a crafter forges does not quote, but for a rare mutation.
func (j *judge) isNodesError(at *place, d dissected) bool {
	if !d.isError() || d.fragment || !slices.Contains(j.nodes, d.Src) || !slices.Contains(at.addrs, d.Dst) {
		return false
	}
	about, err := dissectQuoted(d.body)
	if err != nil || j.attackers[about.Dst] == nil || !isAnswerOf(at.name, about) {
		return false
	}
	d.Src = about.Dst // the rest is demanded of it as of an error of the attacker itself
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.weighQuote(d, d.body) == ""
}

// isAnswerOf reports whether a quoted packet is an answer of an echo server of the named host, or of its kernel to an echo request.
func isAnswerOf(host string, d dissected) bool {
	switch {
	case d.later:
		return false
	case d.Protocol == testutil.ProtoUDP:
		return len(d.payload) > udpHeader && bytes.HasPrefix(d.payload[udpHeader:], []byte(host+":"))
	case d.Protocol == unix.IPPROTO_ICMP:
		return d.ICMPType == 0
	case d.Protocol == unix.IPPROTO_ICMPV6:
		return d.ICMPType == 129
	}
	return false
}

// A node that cannot reach an attacker sends an ICMP error to the host that answered the attacker. The judge of the fuzzing
// attack admits such an error, and none that was changed.
func TestTheJudgeKnowsErrorsOfANode(t *testing.T) {
	s := newScene(t)
	s.Policy("b", fuzzPolicies["b"])
	s.AwaitPolicies(s.b, 1, 1)
	s.Serve(s.b.Host, 53)
	j := s.newJudge(s.m, s.e)
	at := &place{name: s.b.Name(), addrs: s.b.Addrs()}
	families(t, func(t *testing.T, v6 bool) {
		packet := s.errorOfNode(t, v6)
		if wrong := j.arrived(at, packet); wrong != "" {
			t.Errorf("an error of the node: %s: %x", wrong, packet)
		}
		elsewhere := &place{name: s.a.Name(), addrs: s.a.Addrs()}
		if j.arrived(elsewhere, packet) == "" {
			t.Error("an error about another's answer was admitted")
		}
		for what, change := range map[string]func(b []byte){
			"another's source": func(b []byte) { copy(b[sourceAt(v6):], s.ext.Addr(v6).AsSlice()) },
			"a quote of what is no answer": func(b []byte) {
				i := bytes.Index(b, []byte(s.b.Name()))
				b[i]++
			},
			"a quote of a port that is closed": func(b []byte) {
				i := bytes.Index(b, []byte(s.b.Name())) - udpHeader
				b[i+1]++ // the port of the server, 53
			},
		} {
			forged := bytes.Clone(packet)
			change(forged)
			if j.arrived(at, forged) == "" {
				t.Errorf("an error with %s was admitted: %x", what, forged)
			}
		}
	})
}

// errorOfNode is the error by which e's node tells b that its answer did not reach e, from its IP header on.
func (s *scene) errorOfNode(t *testing.T, v6 bool) []byte {
	t.Helper()
	errors := make(chan []byte, 1)
	tap, err := traffic.OpenTap(s.b.Host, "eth0", func(frame []byte, _ bool) {
		d, err := dissect(frame[14:])
		if err == nil && d.isError() && len(tokensIn(frame)) > 0 {
			select {
			case errors <- bytes.Clone(frame[14:]):
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close() // fails only if the lab has closed it
	link, err := s.e.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.e.Netlink().AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if a.IP.Equal(s.e.Addr(v6).AsSlice()) {
			err = s.e.Netlink().AddrDel(link, &a)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	question := s.from(s.e, s.b, v6, testutil.UDP{SrcPort: 700, DstPort: 53})
	send(t, s.e, bearing(s.e, question)(s.tokens.next())...)
	select {
	case packet := <-errors:
		return packet
	case <-time.After(soon):
		t.Fatal("the node did not say that it does not reach the attacker")
		return nil
	}
}

func sourceAt(v6 bool) int {
	if v6 {
		return 8
	}
	return 12
}
