//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/selector"
)

func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEndpointTableSaysWhatIsWrong(t *testing.T) {
	attached := func(before int, ok bool) []inspect.Attachment {
		return []inspect.Attachment{
			{Hook: "tcx/ingress", Program: "from_pod", Attached: ok, Before: before},
			{Hook: "tcx/egress", Program: "to_pod", Attached: true},
		}
	}
	rows := []inspect.EndpointRow{
		{Namespace: "shop", Name: "ok", Interface: "cali1", Ifindex: 7, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			Ingress: inspect.Direction{Policies: []string{"a", "b"}, Rules: 1}, Attached: attached(0, true)},
		{Namespace: "shop", Name: "waits", Interface: "cali2", Error: "waiting for its interface"},
		{Namespace: "shop", Name: "thief", Interface: "cali6", Ifindex: 12, Attached: attached(0, true), Lost: []inspect.LostAddr{
			{Addr: netip.MustParseAddr("10.0.0.1"), Condition: "Taken", Owner: "shop/ok"},
			{Addr: netip.MustParseAddr("10.0.0.2"), Condition: "NotRouted"},
		}},
		{Namespace: "shop", Name: "bare", Interface: "cali3", Ifindex: 9},
		{Namespace: "shop", Name: "half", Interface: "cali4", Ifindex: 10, Attached: attached(0, false)},
		{Namespace: "shop", Name: "gw", Interface: "cali7", Ifindex: 13, Attached: attached(0, true),
			Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, SourcesError: "packets from P are dropped"},
		{Namespace: "shop", Name: "second", Interface: "cali5", Ifindex: 11, Attached: attached(2, true)},
		{Namespace: "shop", Name: "blue", Interface: "cali8", Ifindex: 14, Attached: []inspect.Attachment{
			{Hook: "tcx/egress", Program: "to_pod", Attached: true, Before: 1, BeforeOf: `another instance of Margay ("blue")`}}},
	}
	want := `
ENDPOINT     INTERFACE  IFINDEX  ADDRESSES      INGRESS             EGRESS     ATTACHED                STATE
shop/ok      cali1      7        10.0.0.1       2 policies, 1 rule  no policy  tcx/ingress,tcx/egress  ok
shop/waits   cali2      -        -              no policy           no policy  -                       waiting for its interface
shop/thief   cali6      12       -              no policy           no policy  tcx/ingress,tcx/egress  10.0.0.1 Taken by shop/ok; 10.0.0.2 NotRouted
shop/bare    cali3      9        -              no policy           no policy  -                       no program is attached to cali3
shop/half    cali4      10       -              no policy           no policy  tcx/egress              from_pod is not attached to tcx/ingress of cali4
shop/gw      cali7      13       +192.0.2.0/24  no policy           no policy  tcx/ingress,tcx/egress  packets from P are dropped
shop/second  cali5      11       -              no policy           no policy  tcx/ingress,tcx/egress  2 programs of other software run before from_pod at tcx/ingress of cali5, which may accept packets before it sees them
shop/blue    cali8      14       -              no policy           no policy  tcx/egress              1 program of another instance of Margay ("blue") run before to_pod at tcx/egress of cali8, which may accept packets before it sees them
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), text(t, endpointTable(rows).write)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTablesWithoutRowsSaySo(t *testing.T) {
	for want, table := range map[string]*table{
		"no endpoints on this node\n": endpointTable(nil),
		"no policies\n":               policyTable(nil),
		"nothing judges the pod\n":    orderTable(nil),
		"no rules\n":                  ruleTable(nil),
		"no sets\n":                   setTable(nil),
		"no problems\n":               problemTable(nil),
		"no flows are tracked\n":      flowTable(nil),
		"nothing has been dropped\n":  dropTable(nil),
	} {
		if got := text(t, table.write); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOtherTables(t *testing.T) {
	policies := policyTable([]inspect.PolicyRow{
		{Tier: "default", Kind: "NetworkPolicy", Namespace: "shop", Name: "db", Order: new(float64), Ingress: 2, Staged: true},
		{Tier: "kube-admin", Kind: "GlobalNetworkPolicy", Name: "all", Ingress: 3, Egress: 3},
	})
	rules := ruleTable([]inspect.RuleRow{{Direction: "ingress", Index: 3, Action: "Allow", Match: "tcp port 80", Rule: "default/knp/shop/db#ingress[0]", Reason: "NetworkPolicy shop/db ingress[0]", ID: 4, Packets: 5, Bytes: 300},
		{Direction: "ingress", Index: 4, Action: "Allow", Match: "anything", Rule: "profile/kns.shop#ingress[0]", Reason: "no policy decides", NeverReached: true}})
	sets := setTable([]inspect.SetRow{{Number: 2, Text: "selector a", Members: 7, Some: []string{"10.0.0.1", "10.0.0.2"}}, {Text: "addresses of this node"}})
	problems := problemTable([]inspect.ProblemRow{{Severity: "rejected", Object: "a.yaml:3: Pod shop/x", Field: "spec", Reason: "wrong"}})
	want := `TIER        ORDER  KIND                 NAMESPACE  NAME  INGRESS OF  EGRESS OF  NOTE
default     0      NetworkPolicy        shop       db    2           -          staged, not enforced
kube-admin  -      GlobalNetworkPolicy  -          all   3           3          -
DIRECTION  INDEX  ACTION  MATCH        RULE                               PACKETS  BYTES
ingress    3      Allow   tcp port 80  NetworkPolicy shop/db ingress[0]   5        300
ingress    4      Allow   anything     no policy decides (never reached)  -        -
NUMBER  MEMBERS  SET                     SOME OF THEM
2       7        selector a              10.0.0.1, 10.0.0.2
-       0        addresses of this node  -
SEVERITY  OBJECT                FIELD  REASON
rejected  a.yaml:3: Pod shop/x  spec   wrong
`
	got := text(t, policies.write) + text(t, rules.write) + text(t, sets.write) + text(t, problems.write)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusText(t *testing.T) {
	for want, s := range map[string]inspect.StatusReport{
		"ready: policy of 2 endpoints is enforced": {InSync: true, Ready: true, EndpointCounts: inspect.EndpointCounts{Endpoints: 2, Enforced: 2}},
		"ready: policy of 1 endpoint is recorded and not enforced": {InSync: true, Ready: true, Agent: inspect.Agent{Dataplane: "record"},
			EndpointCounts: inspect.EndpointCounts{Endpoints: 1}},
		"ready: policy of 3 of 5 endpoints is enforced, 2 are not yet, 1 interface without a pod closed": {InSync: true, Ready: true,
			EndpointCounts: inspect.EndpointCounts{Endpoints: 5, Enforced: 3, Closed: 1}},
		"ready: policy of 0 of 2 endpoints is enforced, 2 wait for their interfaces": {InSync: true, Ready: true,
			EndpointCounts: inspect.EndpointCounts{Endpoints: 2, Waiting: 2}},
		"ready: policy of 1 of 3 endpoints is enforced, 1 is not yet, 1 waits for its interface": {InSync: true, Ready: true,
			EndpointCounts: inspect.EndpointCounts{Endpoints: 3, Enforced: 1, Waiting: 1}},
		"not ready: policy: 2 interfaces of pods are closed":                                                                                                   {InSync: true, NotReady: []string{"policy: 2 interfaces of pods are closed"}},
		"not ready: policy is not fully enforced, the agent tries again: no room":                                                                              {InSync: true, Attempts: inspect.Attempts{Error: "no room"}},
		"not ready: nothing has been enforced yet, the agent tries again: no room":                                                                             {Attempts: inspect.Attempts{Error: "no room"}},
		"not ready: waiting for the first full snapshot of the datastore":                                                                                      {},
		"not ready: policy of the last agent is enforced on 4 interfaces, and no change is followed yet, waiting for the first full snapshot of the datastore": {Inherited: 4},
	} {
		if got := statusText(&s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s := inspect.StatusReport{Agent: inspect.Agent{Version: "v1", Node: "n", Dataplane: "bpf"}, Problems: 2,
		Attempts: inspect.Attempts{Applies: 5, Failed: 1, Applied: time.Unix(0, 0).UTC(), TookSeconds: 0.001}}
	got := text(t, func(w io.Writer) error { return writeStatus(w, &s) })
	for _, want := range []string{"1970-01-01T00:00:00Z, took 1ms", "5 times, 1 of them failed", "2; see margay show problems"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestStatusOfAnAgentThatHasAppliedOnce(t *testing.T) {
	s := inspect.StatusReport{Attempts: inspect.Attempts{Applies: 1}}
	if got := text(t, func(w io.Writer) error { return writeStatus(w, &s) }); !strings.Contains(got, "1 time, 0 of them failed") {
		t.Errorf("no count of 1 in\n%s", got)
	}
}

func TestFlowsAreReadFromTheOpenersSide(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:80")
	gone := netip.MustParseAddr("10.0.0.9")
	r := flowReader{
		names: names{byAddr: map[netip.Addr]string{a.Addr(): "shop/web"}},
		clock: clock{now: 1000, hz: 250},
		endpoints: map[netip.Addr]bpf.Endpoint{
			a.Addr(): {Egress: bpfmaps.PolicyWord(3, 70)}, b.Addr(): {Ingress: bpfmaps.PolicyWord(4, 80)},
		},
		other: func(addr netip.Addr) (bpf.Endpoint, bool) {
			return bpf.Endpoint{Egress: bpfmaps.PolicyWord(5, 90)}, addr == netip.MustParseAddr("10.0.0.3")
		},
	}
	const (
		openerB    = uint8(bpf.MargayCtFlagsCT_OPENER_B)
		translated = uint8(bpf.MargayCtFlagsCT_TRANSLATED)
		shortcut   = uint8(bpf.MargayCtFlagsCT_SHORTCUT)
		midflow    = uint8(bpf.MargayCtFlagsCT_MIDFLOW)
	)
	for _, test := range []struct {
		name string
		flow bpfmaps.Flow
		want flowRow
	}{
		{
			"opened by the lower end", bpfmaps.Flow{A: a, B: b, Proto: 6, Entry: bpf.CtEntry{Seen: 875, Egress: 70, Ingress: 79, Flags: shortcut | midflow}},
			flowRow{Protocol: "tcp", Opener: "10.0.0.1:40000", OpenerName: "shop/web", Responder: "10.0.0.2:80", State: "new", Age: new(8.0),
				Egress: "current", Ingress: "stale", Flags: []string{"shortcut", "mid-flow"}},
		},
		{
			"revoked and reset", bpfmaps.Flow{A: a, B: b, Proto: 6, Entry: bpf.CtEntry{Seen: 1000, State: uint8(bpf.MargayCtStateCT_REVOKED),
				Egress: uint32(bpf.MargayCtStampRESET_AT) | 70, Ingress: 79}},
			flowRow{Protocol: "tcp", Opener: "10.0.0.1:40000", OpenerName: "shop/web", Responder: "10.0.0.2:80", State: "revoked", Age: new(0.0),
				Egress: "reset", Ingress: "stale", Flags: []string{}},
		},
		{
			"opened by the higher end", bpfmaps.Flow{A: a, B: b, Proto: 17, Entry: bpf.CtEntry{Seen: 1001, Egress: 80, Flags: openerB}},
			flowRow{Protocol: "udp", Opener: "10.0.0.2:80", Responder: "10.0.0.1:40000", ResponderName: "shop/web", State: "new", Age: new(0.0),
				Egress: "stale", Ingress: "-", Flags: []string{}},
		},
		{
			"translated", bpfmaps.Flow{A: a, B: netip.MustParseAddrPort("10.96.0.9:443"), Proto: 6,
				Entry: bpf.CtEntry{Seen: 1000, Egress: 70, L4: 8443, Flags: translated, Backend: [16]uint8{10, 0, 0, 2}}},
			flowRow{Protocol: "tcp", Opener: "10.0.0.1:40000", OpenerName: "shop/web", Responder: "10.96.0.9:443", Backend: "10.0.0.2:8443",
				State: "new", Age: new(0.0), Egress: "current", Ingress: "-", Flags: []string{"translated"}},
		},
		{
			"icmp of a pod that is gone", bpfmaps.Flow{A: netip.AddrPortFrom(gone, 77), B: netip.AddrPortFrom(b.Addr(), 0), Proto: 1,
				Entry: bpf.CtEntry{Seen: 1000, Egress: 1, L4: 8 << 8}},
			flowRow{Protocol: "icmp", ICMP: "8/0", Opener: "10.0.0.9", Responder: "10.0.0.2", State: "new", Age: new(0.0), Egress: "gone", Ingress: "-", Flags: []string{}},
		},
		{
			"further address of a pod", bpfmaps.Flow{A: netip.MustParseAddrPort("10.0.0.3:5"), B: b, Proto: 132, Entry: bpf.CtEntry{Seen: 1000, Egress: 90}},
			flowRow{Protocol: "sctp", Opener: "10.0.0.3:5", Responder: "10.0.0.2:80", State: "new", Age: new(0.0), Egress: "current", Ingress: "-", Flags: []string{}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, r.row(test.flow)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStateOfAFlowInOneWord(t *testing.T) {
	const (
		replied, open = uint8(bpf.MargayCtStateCT_REPLIED), uint8(bpf.MargayCtStateCT_OPEN)
		fin, fin2     = uint8(bpf.MargayCtStateCT_FIN_OPENER), uint8(bpf.MargayCtStateCT_FIN_REPLY)
		rst, revoked  = uint8(bpf.MargayCtStateCT_RST), uint8(bpf.MargayCtStateCT_REVOKED)
	)
	for state, want := range map[uint8]string{
		0: "new", replied: "answered", replied | open: "open", replied | open | fin: "closing", open | fin2: "closing",
		open | fin | fin2: "closed", open | rst: "reset", open | rst | revoked: "revoked",
	} {
		if got := stateText(&bpf.CtEntry{State: state}); got != want {
			t.Errorf("state %#x is %q, want %q", state, got, want)
		}
	}
	const oneWay = uint8(bpf.MargayCtStateCT_ONE_WAY)
	for stamp, want := range map[uint32]string{0: "revoked", 7: "open"} { // 7: judged again, and allowed
		if got := stateText(&bpf.CtEntry{State: replied | open | oneWay, Ingress: stamp}); got != want {
			t.Errorf("a flow that was revoked once, with stamp %d, is %q, want %q", stamp, got, want)
		}
	}
}

func TestKernelClockGoesOn(t *testing.T) {
	testutil.Privileged(t) // only root may read it
	first, err := kernelClock()
	if err != nil {
		t.Fatal(err)
	}
	if first.hz < 100 || first.hz > 1000 {
		t.Errorf("%v ticks a second", first.hz)
	}
	if age := first.age(first.now - uint32(first.hz)); age != 16*time.Second {
		t.Errorf("16 seconds are %v", age)
	}
}

func TestDropsSayWhoseAndWhy(t *testing.T) {
	rows := dropRows(map[bpf.DropKey]bpf.Counter{
		{Ifindex: 1 << 30, Reason: uint16(bpf.MargayDropReasonDROP_SPOOFED)}:    {Packets: 1, Bytes: 60},
		{Ifindex: 7, Reason: uint16(bpf.MargayDropReasonDROP_POLICY), ToPod: 1}: {Packets: 3, Bytes: 180},
		{Ifindex: 7, Reason: uint16(bpf.MargayDropReasonDROP_POLICY)}:           {Packets: 2, Bytes: 120},
	}, names{byIndex: map[uint32]string{7: "shop/db"}, ifaces: map[uint32]string{7: "cali7"}})
	want := `ENDPOINT  INTERFACE           DIRECTION  PACKETS  BYTES  REASON   MEANING
-         ifindex 1073741824  egress     1        60     spoofed  source address is not the endpoint's own
shop/db   cali7               egress     2        120    policy   denied by policy
shop/db   cali7               ingress    3        180    policy   denied by policy
`
	if diff := cmp.Diff(want, text(t, dropTable(rows).write)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var out bytes.Buffer
	format := outputFlag("json")
	if err := format.write(&out, rows[1:2], nil); err != nil {
		t.Fatal(err)
	}
	var back []dropRow
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows[1:2], back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKindTextNamesTheGroupThatIsRead(t *testing.T) {
	row := inspect.KindRow{Kind: "Tier", State: "synced", Objects: 3, Read: "projectcalico.org/v3", NotRead: "crd.projectcalico.org/v1, 5 objects"}
	if got, want := kindText(row), "synced, 3 objects of projectcalico.org/v3 (not read: crd.projectcalico.org/v1, 5 objects)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTheFallbackIsShown: in the status for people.
func TestTheFallbackIsShown(t *testing.T) {
	s := &inspect.StatusReport{Agent: inspect.Agent{Dataplane: "iptables", Chosen: inspect.Choice{How: inspect.ChoiceFallback, Reason: "kernel 5.14 lacks"}}}
	var out strings.Builder
	if err := writeStatus(&out, s); err != nil || !strings.Contains(out.String(), "iptables: kernel 5.14 lacks") {
		t.Errorf("status, %v:\n%s", err, out.String())
	}
}

func TestSelectorsAreShownWithoutWhatTheConversionAdds(t *testing.T) {
	for text, want := range map[string]string{
		`projectcalico.org/orchestrator == "k8s" && app == "db"`:                            `app == "db"`,
		`pcns.env != "p" && ` + selector.OfKnownNamespace:                                   `pcns.env != "p"`,
		`(a == "x" || ` + selector.OfKnownNamespace + ` && b == "y")`:                       `(a == "x" || b == "y")`,
		`x && ` + selector.OfKnownNamespace + ` && projectcalico.org/orchestrator != "k8s"`: `x && projectcalico.org/orchestrator != "k8s"`,
	} {
		if got := readable(text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}
