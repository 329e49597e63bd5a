package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/packetlog"
)

const answerBit = 0x40000000 // of the mark of a copy: against its flow

// copyOf is a copy of a packet of TCP from 10.0.0.1 to the endpoint a, or of an answer, as rules of the generation in force make it.
func (n *fakeNode) copyOf(kind string, src string, port uint16) packetlog.Copy {
	return packetlog.Copy{
		Time: time.Now().Add(time.Hour), Number: model.ProtoTCP, In: 77, Out: 1, // calia
		Prefix: fmt.Sprintf("%s-%d", kind, n.state.static.generation.number),
		Packet: flows.Packet{Protocol: "tcp", Src: netip.AddrPortFrom(netip.MustParseAddr(src), 4000), Dst: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.10"), port)},
	}
}

func brief(list []flows.Unnamed) string {
	var all []string
	for _, u := range list {
		r := u.Record
		text := fmt.Sprintf("%d %s %s %s %s by %s", u.Ifindex, r.Verdict, r.Direction, r.Src, r.Dst, r.Rule)
		if r.Note != "" {
			text += " (" + r.Note + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// A copy is a record with the rule that has decided, as the chains were made of it; what is not known any more is said so.
func TestCopiesAreDecidedByThePolicyInForce(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.mustApply(t)
	turned := n.copyOf("allow", "10.0.0.1", 80)
	turned.Packet.Src, turned.Packet.Dst, turned.In, turned.Out, turned.Mark = turned.Packet.Dst, turned.Packet.Src, turned.Out, turned.In, answerBit
	earlier := n.copyOf("deny", "10.0.0.2", 80)
	earlier.Prefix = "deny-1"
	soonAfter := n.copyOf("deny", "10.0.0.2", 80)
	soonAfter.Time = time.Now()
	from := n.copyOf("allow", "10.0.0.1", 80)
	from.In = 2 // an interface of another endpoint, which does not have the address
	between := n.copyOf("deny", "10.0.2.1", 80)
	between.In = 2
	same := n.copyOf("allow", "10.0.0.10", 80)
	same.In = 1
	foreign := n.copyOf("deny", "10.0.0.2", 80)
	foreign.Prefix = "of somebody else"
	for name, test := range map[string]struct {
		copy packetlog.Copy
		want string
	}{
		"allowed":              {n.copyOf("allow", "10.0.0.1", 80), "1 allow ingress 10.0.0.1:4000 10.0.0.10:80 by default/gnp/p#ingress[0]"},
		"an answer":            {turned, "1 allow ingress 10.0.0.1:4000 10.0.0.10:80 by default/gnp/p#ingress[0]"},
		"denied":               {n.copyOf("deny", "10.0.0.1", 81), "1 deny ingress 10.0.0.1:4000 10.0.0.10:81 by default/gnp/p#end-of-tier"},
		"judged again":         {n.copyOf("again", "10.0.0.1", 80), "1 allow ingress 10.0.0.1:4000 10.0.0.10:80 by default/gnp/p#ingress[0] (judged again)"},
		"revoked":              {n.copyOf("revoke", "10.0.0.2", 80), "1 deny ingress 10.0.0.2:4000 10.0.0.10:80 by default/gnp/p#end-of-tier (revoked)"},
		"by an earlier policy": {earlier, "1 deny ingress 10.0.0.2:4000 10.0.0.10:80 by default/gnp/p#end-of-tier (" + changedThen + ")"},
		"right after a change": {soonAfter, "1 deny ingress 10.0.0.2:4000 10.0.0.10:80 by default/gnp/p#end-of-tier (" + changedThen + ")"},
		"denied then":          {n.copyOf("deny", "10.0.0.1", 80), "1 deny ingress 10.0.0.1:4000 10.0.0.10:80 by " + ruleNotKnown},
		"allowed then":         {n.copyOf("allow", "10.0.0.2", 80), "1 allow ingress 10.0.0.2:4000 10.0.0.10:80 by " + ruleNotKnown},
		"not its address":      {from, "1 allow ingress 10.0.0.1:4000 10.0.0.10:80 by default/gnp/p#ingress[0]"},
		// Both ends judge: the sender's egress has no policy of its own here, and no profile allows.
		"between endpoints": {between, "2 deny egress 10.0.2.1:4000 10.0.0.10:80 by no-profile-match"},
		"to itself":         {same, ""},
		"of other rules":    {foreign, ""},
	} {
		if got := brief(n.Decide([]packetlog.Copy{test.copy})); got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, test.want)
		}
	}
}

// The flows of a quiet node are recorded even if the machine stops the agent while it decides.
func TestAStoppedAgentDecidesAFewCopies(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	many := make([]packetlog.Copy, 2*leastDecided)
	for i := range many {
		many[i] = n.copyOf("deny", "10.0.0.1", 81)
	}
	if made := len(n.decideUntil(many, time.Now().Add(-time.Second))); made != leastDecided {
		t.Errorf("%d records, want %d", made, leastDecided)
	}
}

// What Decide costs the loop is bounded, however many copies there are: the rest is left out, and the next record says so.
func TestDecidingIsBounded(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	many := make([]packetlog.Copy, 200_000)
	for i := range many {
		many[i] = n.copyOf("deny", "10.0.0.1", 81)
	}
	made := len(n.Decide(many))
	if made == 0 || made == len(many) {
		t.Fatalf("%d of %d", made, len(many))
	}
	next := n.Decide(many[:1])
	if got := next[0].Record.Suppressed; got == 0 || int(got) != min(len(many)-made, 0xffff) {
		t.Errorf("%d are said to be left out, want %d", got, len(many)-made)
	}
	if again := n.Decide(many[:1]); again[0].Record.Suppressed != 0 {
		t.Error("and once more")
	}
}
