package handover

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/shares"
)

var (
	podA    = netip.MustParseAddr("10.65.1.2")
	podB    = netip.MustParseAddr("10.65.1.3")
	node    = netip.MustParseAddr("10.66.0.1")
	outside = netip.MustParseAddr("192.0.2.7")
	service = netip.MustParseAddr("10.96.0.10")
)

// place: podA is on interface 4 and podB on 5.
func place(a netip.Addr) Place {
	return Place{Interface: map[netip.Addr]uint32{podA: 4, podB: 5}[a], Node: a == node}
}

func tcp(src netip.Addr, sport uint16, dst netip.Addr, dport uint16) conntrack.Tuple {
	return conntrack.Tuple{Src: src, Dst: dst, SrcPort: sport, DstPort: dport, Protocol: 6}
}

// established is an entry of a connection, after translation to another responder if one is said.
func established(original conntrack.Tuple, responder ...conntrack.Tuple) conntrack.Entry {
	after := original
	if len(responder) > 0 {
		after = responder[0]
	}
	return conntrack.Entry{Original: original, Reply: swapped(after), TCPState: conntrack.TCPEstablished,
		Status: conntrack.Confirmed | conntrack.SeenReply | conntrack.Assured}
}

// text is what counts of a flow.
func text(f bpfmaps.Flow) string {
	opener, responder := f.Ends()
	e := f.Entry
	var backend netip.Addr
	if e.Flags&translated != 0 {
		backend = netip.AddrFrom4([4]byte(e.Backend[:4]))
	}
	return fmt.Sprintf("%v>%v l4 %d state %d flags %d stamps %d %d of %d %d %v", opener, responder, e.L4, e.State, e.Flags&^1, e.Egress, e.Ingress, e.OpenerIf, e.ResponderIf, backend)
}

func TestConnectionsBecomeFlowsOfBothEnds(t *testing.T) {
	allowed := Mark{Judged: true, Allowed: true}
	plain := tcp(podA, 1000, podB, 80)
	udp := established(plain)
	udp.Original.Protocol, udp.Reply.Protocol, udp.TCPState = unix.IPPROTO_UDP, unix.IPPROTO_UDP, 0
	toService, backend := tcp(podA, 1000, service, 80), tcp(podA, 1000, podB, 8080)
	for name, c := range map[string]struct {
		entry conntrack.Entry
		mark  Mark
		keep  bool
		want  []string
	}{
		"pod to pod":                       {established(plain), allowed, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 3 flags 0 stamps 9 9 of 4 5 invalid IP"}},
		"an answer was seen first":         {established(swapped(plain)), Mark{Judged: true, Turned: true}, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 3 flags 0 stamps 9 9 of 4 5 invalid IP"}},
		"never judged":                     {established(plain), Mark{}, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 3 flags 0 stamps 0 0 of 4 5 invalid IP"}},
		"kept, of an old generation":       {established(plain), Mark{Judged: true}, true, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 3 flags 0 stamps 0 0 of 4 5 invalid IP"}},
		"revoked":                          {established(plain), Mark{Judged: true, Denied: true}, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 35 flags 0 stamps 9 9 of 4 5 invalid IP"}},
		"UDP":                              {udp, allowed, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 3 flags 0 stamps 9 9 of 4 5 invalid IP"}},
		"UDP, revoked":                     {udp, Mark{Judged: true, Denied: true}, false, []string{"10.65.1.2:1000>10.65.1.3:80 l4 80 state 65 flags 0 stamps 0 0 of 4 5 invalid IP"}},
		"from elsewhere":                   {established(tcp(outside, 1, podB, 80)), allowed, false, []string{"192.0.2.7:1>10.65.1.3:80 l4 80 state 3 flags 0 stamps 0 9 of 0 5 invalid IP"}},
		"from the node":                    {established(tcp(node, 1, podB, 80)), Mark{}, false, []string{"10.66.0.1:1>10.65.1.3:80 l4 80 state 3 flags 2 stamps 0 0 of 0 5 invalid IP"}},
		"to the node":                      {established(tcp(podA, 1, node, 80)), allowed, false, []string{"10.65.1.2:1>10.66.0.1:80 l4 80 state 3 flags 8 stamps 9 0 of 4 0 10.66.0.1"}},
		"from the node by a Service":       {established(tcp(node, 1, service, 80), tcp(node, 1, podB, 8080)), Mark{}, false, []string{"10.66.0.1:1>10.65.1.3:8080 l4 8080 state 3 flags 2 stamps 0 0 of 0 5 invalid IP"}},
		"of others":                        {established(tcp(outside, 1, service, 80)), allowed, false, nil},
		"to a Service":                     {established(toService, backend), allowed, false, []string{"10.65.1.2:1000>10.96.0.10:80 l4 8080 state 3 flags 8 stamps 9 0 of 4 0 10.65.1.3", "10.65.1.2:1000>10.65.1.3:8080 l4 8080 state 3 flags 0 stamps 0 9 of 0 5 invalid IP"}},
		"masqueraded, from outside":        {established(tcp(outside, 1, node, 30080), tcp(node, 7, podB, 8080)), allowed, false, []string{"10.66.0.1:7>10.65.1.3:8080 l4 8080 state 3 flags 0 stamps 0 9 of 0 5 invalid IP"}},
		"to itself by a Service":           {established(toService, tcp(podA, 1000, podA, 8080)), allowed, false, []string{"10.65.1.2:1000>10.96.0.10:80 l4 8080 state 3 flags 4 stamps 9 0 of 4 0 invalid IP", "10.65.1.2:1000>10.65.1.2:8080 l4 8080 state 3 flags 4 stamps 0 9 of 0 4 invalid IP"}},
		"translated, an answer seen first": {established(toService, backend), Mark{Judged: true, Turned: true}, false, nil},
	} {
		f := Flows{Place: place, Mark: func(conntrack.Entry) Mark { return c.mark }, Stamp: 9, Keep: c.keep, Now: 5}
		var got []string
		for _, flow := range f.Of(c.entry) {
			got = append(got, text(flow))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPingsAndOtherProtocolsBecomeFlows(t *testing.T) {
	ping := conntrack.Tuple{Src: podA, Dst: podB, Protocol: 1, ICMPType: 8, ICMPID: 77}
	pong := conntrack.Tuple{Src: podB, Dst: podA, Protocol: 1, ICMPType: 0, ICMPID: 77}
	ping6 := conntrack.Tuple{Src: netip.MustParseAddr("fd00::2"), Dst: netip.MustParseAddr("fd00::3"), Protocol: 58, ICMPType: 128, ICMPID: 77}
	other := conntrack.Tuple{Src: podA, Dst: podB, Protocol: 253}
	f := Flows{Mark: func(conntrack.Entry) Mark { return Mark{Judged: true} }, Stamp: 9,
		Place: func(a netip.Addr) Place {
			if a.Is6() {
				return Place{Interface: 2 + uint32(a.As16()[15])}
			}
			return place(a)
		}}
	for _, c := range []struct {
		entry conntrack.Entry
		want  string
	}{
		{conntrack.Entry{Original: ping, Reply: pong, Status: conntrack.SeenReply}, "10.65.1.2:77>10.65.1.3:78 l4 2048 state 1 flags 0 stamps 9 9 of 4 5 invalid IP"},
		{conntrack.Entry{Original: ping6, Reply: swapped(ping6)}, "[fd00::2]:77>[fd00::3]:78 l4 32768 state 0 flags 0 stamps 9 9 of 4 5 invalid IP"},
		{conntrack.Entry{Original: other, Reply: swapped(other)}, "10.65.1.2:0>10.65.1.3:0 l4 253 state 0 flags 0 stamps 9 9 of 4 5 invalid IP"},
	} {
		got := f.Of(c.entry)
		if len(got) != 1 || text(got[0]) != c.want {
			t.Errorf("%v", got)
			continue
		}
		back, ok := tupleOf(&got[0])
		if !ok || back != c.entry.Original {
			t.Errorf("and back: %v, %v", back, ok)
		}
	}
	// The kernel tracks some more kinds of questions by ICMP. For BPF they are no flows.
	for _, question := range []conntrack.Tuple{ping, ping6} {
		question.ICMPType = map[uint8]uint8{1: 13, 58: 139}[question.Protocol]
		if got := f.Of(conntrack.Entry{Original: question, Reply: swapped(question)}); len(got) > 0 {
			t.Errorf("%v became %v", question, text(got[0]))
		}
	}
}

// table is a fake of the kernel's that notes what is written.
type table struct {
	shares.Fake
	writes  []string
	between func() // what packets do while an entry is replaced
}

func newTable(limit uint32, entries ...conntrack.Entry) *table {
	k := &table{Fake: shares.Fake{Limit: limit}}
	k.Add(entries...)
	return k
}

func (k *table) Insert(flows []conntrack.Flow) []error {
	errs := make([]error, len(flows))
	for i, f := range flows {
		if slices.ContainsFunc(k.Entries(), func(e conntrack.Entry) bool {
			return e.Original == f.Original || e.Original == swapped(f.Original) || e.Reply == swapped(f.Original)
		}) {
			errs[i] = conntrack.ErrExists
			continue
		}
		k.Add(conntrack.Entry{Original: f.Original, Reply: swapped(f.Original), Mark: f.Mark})
		k.writes = append(k.writes, fmt.Sprintf("insert %v, %#x, %v", f.Original, f.Mark, f.Timeout))
	}
	return errs
}

func (k *table) Delete(list []conntrack.Entry) []error {
	for _, gone := range list {
		k.writes = append(k.writes, fmt.Sprintf("delete %v", gone.Original))
	}
	return k.Fake.Delete(list)
}

// Replace is Delete and Insert of each pair.
func (k *table) Replace(list []conntrack.Entry, flows []conntrack.Flow) []error {
	errs := make([]error, len(list))
	for i, e := range list {
		k.Delete([]conntrack.Entry{e})
		if k.between != nil {
			k.between()
		}
		errs[i] = k.Insert(flows[i : i+1])[0]
	}
	return errs
}

func (k *table) SetMarks(list []conntrack.Entry, mark func(conntrack.Entry) uint32, mask uint32) []error {
	for _, e := range list {
		k.writes = append(k.writes, fmt.Sprintf("mark %v %#x/%#x", e.Original, mark(e), mask))
	}
	return make([]error, len(list))
}

func all(list ...bpfmaps.Flow) iter.Seq2[bpfmaps.Flow, error] {
	return func(yield func(bpfmaps.Flow, error) bool) {
		for _, f := range list {
			if !yield(f, nil) {
				return
			}
		}
	}
}

func flow(t conntrack.Tuple, e bpf.CtEntry) bpfmaps.Flow {
	return bpfmaps.NewFlow(netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort), t.Protocol, e)
}

func TestTheKernelLearnsFlows(t *testing.T) {
	times := dataplane.Defaults().Timeouts
	plain := tcp(podA, 1000, podB, 80)
	toService, backend := tcp(podA, 1000, service, 80), tcp(podA, 1000, podB, 8080)
	both := bpf.CtEntry{State: replied | open, Egress: 3, Ingress: 3, OpenerIf: 4, ResponderIf: 5}
	half := both
	half.Ingress, half.State = 0, 0
	front := bpf.CtEntry{State: replied | open, Flags: translated, Egress: 3, OpenerIf: 4}
	gone := half
	gone.State |= revoked
	ping := bpfmaps.NewFlow(netip.AddrPortFrom(podA, 7), netip.AddrPortFrom(outside, 8), 1, bpf.CtEntry{L4: 8 << 8, Egress: 3, OpenerIf: 4})
	cut := both
	cut.State |= revoked
	moved, far := both, both
	moved.ResponderIf = 7
	far.ResponderIf, far.Ingress = 0, 0
	guess := both
	guess.Flags |= midflow
	across, crossed, ending := both, both, both
	across.Flags |= shortcut
	crossed.Flags, crossed.State = shortcut, crossed.State|fins
	ending.State |= fins
	// podA sends from the address of a host outside.
	strange, denied := tcp(outside, 53, podB, 5300), both
	denied.Ingress = 0
	stray := func(ifindex uint32, a netip.Addr) bool { return ifindex == 4 && a == outside }
	halfClosed := across
	halfClosed.State |= uint8(bpf.MargayCtStateCT_FIN_OPENER)
	over := func(e conntrack.Entry) conntrack.Entry { e.TCPState = conntrack.TCPTimeWait; return e }
	closing := func(e conntrack.Entry) conntrack.Entry { e.TCPState = conntrack.TCPCloseWait; return e }
	for name, c := range map[string]struct {
		there []conntrack.Entry
		flows []bpfmaps.Flow
		marks Marks
		want  string
	}{
		"unknown":                             {nil, []bpfmaps.Flow{flow(plain, both)}, Marks{Value: 1, Mask: 3}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x1, 1h0m0s"},
		"known, not marked":                   {[]conntrack.Entry{established(plain)}, []bpfmaps.Flow{flow(plain, both)}, Marks{Value: 1, Mask: 3}, "mark protocol 6, 10.65.1.2:1000 to 10.65.1.3:80 0x1/0x3"},
		"an answer was seen first":            {[]conntrack.Entry{established(swapped(plain))}, []bpfmaps.Flow{flow(plain, both)}, Marks{Value: 1, Mask: 3}, "delete protocol 6, 10.65.1.3:80 to 10.65.1.2:1000; insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x1, 1h0m0s"},
		"and the other is a guess":            {[]conntrack.Entry{established(swapped(plain))}, []bpfmaps.Flow{flow(plain, guess)}, Marks{Value: 1, Mask: 3}, ""},
		"a Service is known":                  {[]conntrack.Entry{established(toService, backend)}, []bpfmaps.Flow{flow(toService, front), flow(backend, half)}, Marks{}, ""},
		"a Service cannot be added":           {nil, []bpfmaps.Flow{flow(toService, front)}, Marks{}, ""},
		"past the kernel, known":              {[]conntrack.Entry{established(plain)}, []bpfmaps.Flow{flow(plain, across)}, Marks{}, ""},
		"a former one has its ends":           {[]conntrack.Entry{over(established(plain))}, []bpfmaps.Flow{flow(plain, across)}, Marks{Value: 1, Mask: 3}, "delete protocol 6, 10.65.1.2:1000 to 10.65.1.3:80; insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x1, 1h0m0s"},
		"a former one by a Service":           {[]conntrack.Entry{over(established(toService, backend))}, []bpfmaps.Flow{flow(backend, across)}, Marks{}, "delete protocol 6, 10.65.1.2:1000 to 10.96.0.10:80; insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:8080, 0x0, 1h0m0s"},
		"a former one, half-closed since":     {[]conntrack.Entry{over(established(toService, backend))}, []bpfmaps.Flow{flow(backend, halfClosed)}, Marks{}, "delete protocol 6, 10.65.1.2:1000 to 10.96.0.10:80; insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:8080, 0x0, 1h0m0s"},
		"half-closed, known":                  {[]conntrack.Entry{closing(established(plain))}, []bpfmaps.Flow{flow(plain, halfClosed)}, Marks{}, ""},
		"a former one, seen":                  {[]conntrack.Entry{over(established(plain))}, []bpfmaps.Flow{flow(plain, both)}, Marks{}, ""},
		"both have ended":                     {[]conntrack.Entry{over(established(plain))}, []bpfmaps.Flow{flow(plain, crossed)}, Marks{}, ""},
		"both have ended, seen":               {[]conntrack.Entry{over(established(plain))}, []bpfmaps.Flow{flow(plain, ending)}, Marks{}, ""},
		"kept":                                {nil, []bpfmaps.Flow{flow(plain, both)}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x2, 1h0m0s"},
		"not kept: one end has not":           {nil, []bpfmaps.Flow{flow(plain, half)}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 20s"},
		"not kept: it was revoked":            {nil, []bpfmaps.Flow{flow(plain, cut)}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 30s"},
		"not kept: another has the address":   {nil, []bpfmaps.Flow{flow(plain, moved)}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 1h0m0s"},
		"not kept: a pod has the address now": {nil, []bpfmaps.Flow{flow(plain, far)}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 1h0m0s"},
		"of a further endpoint, kept":         {nil, []bpfmaps.Flow{flow(tcp(outside, 1, podB, 80), bpf.CtEntry{State: 3, Ingress: 1, ResponderIf: 5})}, Marks{Value: 2, Mask: 3, Keep: true}, "insert protocol 6, 192.0.2.7:1 to 10.65.1.3:80, 0x2, 1h0m0s"},
		"sent elsewhere's, denied":            {[]conntrack.Entry{established(strange)}, []bpfmaps.Flow{flow(strange, denied)}, Marks{Value: 2, Mask: 3, Stray: stray, Lone: 1}, "mark protocol 6, 192.0.2.7:53 to 10.65.1.3:5300 0x1/0x3"},
		"sent elsewhere's, denied, unknown":   {nil, []bpfmaps.Flow{flow(strange, denied)}, Marks{Value: 2, Mask: 3, Stray: stray, Lone: 1}, ""},
		"sent elsewhere's, no marks":          {[]conntrack.Entry{established(strange)}, []bpfmaps.Flow{flow(strange, denied)}, Marks{Stray: stray}, ""},
		"sent elsewhere's, allowed":           {nil, []bpfmaps.Flow{flow(strange, both)}, Marks{Value: 2, Mask: 3, Stray: stray, Lone: 1}, "insert protocol 6, 192.0.2.7:53 to 10.65.1.3:5300, 0x2, 1h0m0s"},
		"not sent elsewhere's":                {nil, []bpfmaps.Flow{flow(plain, half)}, Marks{Value: 2, Mask: 3, Stray: stray, Lone: 1}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 20s"},
		"to a pod that has not allowed it":    {[]conntrack.Entry{established(plain)}, []bpfmaps.Flow{flow(plain, half)}, Marks{Value: 2, Mask: 3}, ""},
		"of a pod that has not allowed it":    {nil, []bpfmaps.Flow{flow(plain, bpf.CtEntry{State: 3, Ingress: 1, ResponderIf: 5})}, Marks{Value: 2, Mask: 3}, "insert protocol 6, 10.65.1.2:1000 to 10.65.1.3:80, 0x0, 1h0m0s"},
		"to a machine outside, revoked":       {nil, []bpfmaps.Flow{flow(tcp(podA, 1000, outside, 80), gone)}, Marks{Value: 2, Mask: 3}, "insert protocol 6, 10.65.1.2:1000 to 192.0.2.7:80, 0x0, 30s"},
		"a ping":                              {nil, []bpfmaps.Flow{ping}, Marks{Value: 2, Mask: 3}, "insert protocol 1, 10.65.1.2 to 192.0.2.7, type 8, id 7, 0x2, 5s"},
		"to a machine outside":                {nil, []bpfmaps.Flow{flow(tcp(podA, 1000, outside, 80), half)}, Marks{Value: 2, Mask: 3}, "insert protocol 6, 10.65.1.2:1000 to 192.0.2.7:80, 0x2, 20s"},
	} {
		k := newTable(1000, c.there...)
		c.marks.Owner = owner
		if _, err := ToKernel(all(c.flows...), k, times, c.marks); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := slices.Compact(k.writes) // each pass marks, since the fake's marks stay
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s:\n%s\n%s", name, text, c.want)
		}
	}
}

func owner(a netip.Addr) uint32 { return place(a).Interface }

// TestAPacketThatComesBetweenIsNotBelieved: an answer comes after the wrong entry is removed and before the right one is added, so
// the kernel makes the wrong one again. The next pass replaces it.
func TestAPacketThatComesBetweenIsNotBelieved(t *testing.T) {
	plain := tcp(podA, 1000, podB, 80)
	k := newTable(1000, established(swapped(plain)))
	packets := 2
	k.between = func() {
		if packets > 0 {
			packets--
			k.Add(established(swapped(plain)))
		}
	}
	e := bpf.CtEntry{State: replied | open, Egress: 3, Ingress: 3, OpenerIf: 4, ResponderIf: 5}
	done, err := ToKernel(all(flow(plain, e)), k, dataplane.Defaults().Timeouts, Marks{Value: 1, Mask: 3, Owner: owner})
	if left := k.Entries(); err != nil || len(left) != 1 || left[0].Original != plain || left[0].Mark != 1 || done.Turned != 1 {
		t.Errorf("%v, %+v, %v", left, done, err)
	}
}

// TestATableWithoutALimitHasRoom: with net.netfilter.nf_conntrack_max = 0 the kernel does not limit its table.
func TestATableWithoutALimitHasRoom(t *testing.T) {
	k := newTable(0)
	done, err := ToKernel(all(flow(tcp(podA, 1000, podB, 80), bpf.CtEntry{Egress: 1, OpenerIf: 4})), k, dataplane.Timeouts{TCPSyn: time.Second}, Marks{})
	if err != nil || len(k.Entries()) != 1 || done.Left != 0 {
		t.Errorf("%v, %+v, %v", k.Entries(), done, err)
	}
}

// TestAFloodOfOnePodLeavesRoomForFlowsOfOthers: the kernel's table is smaller than the maps may be.
func TestAFloodOfOnePodLeavesRoomForFlowsOfOthers(t *testing.T) {
	var flows []bpfmaps.Flow
	for i := range uint16(500) {
		flows = append(flows, flow(tcp(podA, 1000+i, outside, 80), bpf.CtEntry{Egress: 1, OpenerIf: 4}))
	}
	for i := range uint16(20) {
		flows = append(flows, flow(tcp(podB, 1000+i, outside, 80), bpf.CtEntry{Egress: 1, OpenerIf: 5}))
	}
	k := newTable(160)
	done, err := ToKernel(all(flows...), k, dataplane.Timeouts{TCPSyn: time.Second}, Marks{})
	of := map[netip.Addr]int{}
	for _, e := range k.Entries() {
		of[e.Original.Src]++
	}
	if err != nil || of[podB] != 20 || of[podA] < 100 || len(k.Entries()) > 140 || done.Left != 520-len(k.Entries()) {
		t.Errorf("%v, %+v, %v", of, done, err)
	}
}
