package chains_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

// Slots of a world under test. Their numbers are such that a number left behind in a mark would be that of a slot or class
// that allows: the class of b in a mark is that of the slot openIngress, and the slot guarded is that of the class of a.
const (
	openEgress   = 1
	closedEgress = 2
	guarded      = 3 // ingress: TCP 8080 and UDP 8081, from a
	openIngress  = 4
	shutIngress  = 5

	classOfA = 2
	classOfB = 3
	classOfX = 9
)

// world is a node with the pods a and b and, beyond it, x; its rules and sets are those of one family and backend.
type world struct {
	backend
	t       *testing.T
	o       *chains.Options
	config  chains.Config
	node    *lab.Node
	a, b    *lab.Pod
	x       *lab.External
	slots   []*chains.Slot
	egress  map[*lab.Pod]uint32
	ingress map[*lab.Pod]uint32
	ready   map[*lab.Pod]bool
	others  bool // table raw has rules of others, which a load would remove
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newWorld(t *testing.T, b backend) *world {
	testutil.Privileged(t)
	testutil.RequireCommand(t, b.command("-restore"))
	testutil.RequireCommand(t, "ipset")
	l := must(lab.New())(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{backend: b, t: t, o: optionsFor(t, b.family, b.shape)}
	w.node = must(l.AddNode("n"))(t)
	w.a, w.b = must(w.node.AddPod("ns", "a"))(t), must(w.node.AddPod("ns", "b"))(t)
	w.x = must(l.AddExternal("x"))(t)
	w.config = chains.Config{Marks: w.o.Marks, Names: w.o.Names, Family: b.family, Interfaces: "cali", Generation: 2,
		Tunnels: []uint16{4789}, Resets: chains.Resets{Group: 9}, Masquerade: chains.Masquerade{Mark: 0x4000, Class: classOfX, Addrs: []netip.Addr{w.addr(w.node.Host)}}}
	w.egress, w.ingress = map[*lab.Pod]uint32{w.a: openEgress, w.b: openEgress}, map[*lab.Pod]uint32{w.a: openIngress, w.b: guarded}
	w.ready = map[*lab.Pod]bool{w.a: true, w.b: true}
	w.makeSlots()
	w.load()
	w.fillSets()
	return w
}

func (w *world) addr(h *lab.Host) netip.Addr { return h.Addr(w.family == 6) }

func (w *world) makeSlots() {
	only := func(p uint8, port uint16) model.MatchRule {
		return model.MatchRule{Action: model.Allow, Protocol: &p, Source: model.Side{Nets: []netip.Prefix{netip.PrefixFrom(w.addr(w.a.Host), w.addr(w.a.Host).BitLen())}},
			Destination: model.Side{Ports: policytest.PortsOf(port, port)}}
	}
	add := func(number uint32, p *model.DirectionPolicy) {
		numbers, own := policytest.NewNumbers(), &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
		prog := must(match.Expand(p, own, numbers))(w.t)
		known := []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}
		for id, h := range map[uint32]*lab.Host{classOfA: w.a.Host, classOfB: w.b.Host, classOfX: w.x.Host} {
			c := own.ClassOf(prog, numbers, w.addr(h))
			c.ID = id
			known = append(known, c)
		}
		w.slots = append(w.slots, must(chains.NewSlot(number, table.Build(prog, classes.ListOf(known), table.Limits{}), known, w.o))(w.t))
	}
	add(openEgress, policytest.OnePolicy(model.Egress, model.MatchRule{}))
	add(closedEgress, policytest.OnePolicy(model.Egress))
	add(guarded, policytest.OnePolicy(model.Ingress, only(model.ProtoTCP, 8080), only(model.ProtoUDP, 8081)))
	add(openIngress, policytest.OnePolicy(model.Ingress, model.MatchRule{}))
	add(shutIngress, policytest.OnePolicy(model.Ingress))
}

// run runs a command on the node.
func (w *world) run(input string, command ...string) string {
	w.t.Helper()
	out, err := w.node.Run(context.Background(), input, command[0], command[1:]...)
	if err != nil {
		w.t.Fatalf("%v: %v: %s\n%.2000s", command, err, out, input)
	}
	return out
}

// load makes the chains those of the configuration.
func (w *world) load() {
	if !w.others {
		w.loadTables("raw")
	}
	w.loadTables("mangle", "filter")
}

func (w *world) loadTables(tables ...string) {
	w.t.Helper()
	w.run(strings.Join([]string{w.createSets(), ""}, ""), "ipset", "restore", "-exist")
	static := must(chains.NewStatic(&w.config))(w.t)
	mangle := static.Mangle
	for _, s := range w.slots {
		mangle = append(mangle, s.Chains()...)
	}
	for d, numbers := range map[chains.Direction][]uint32{
		chains.EgressSlots: {openEgress, closedEgress}, chains.IngressSlots: {guarded, openIngress, shutIngress},
	} {
		tree := chains.NewDispatch(d, w.o)
		for _, n := range numbers {
			must(tree.Add(n))(w.t)
		}
		mangle = append(mangle, tree.Chains()...)
	}
	var b strings.Builder
	for _, t := range []struct {
		name string
		all  []chains.Chain
	}{{"raw", static.Raw}, {"mangle", mangle}, {"filter", static.Filter}} {
		if !slices.Contains(tables, t.name) {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.all {
			fmt.Fprintf(&b, ":%s - [0:0]\n", c.Name)
		}
		for _, j := range static.Jumps {
			if j.Table == t.name {
				fmt.Fprintf(&b, "-A %s %s\n", j.Chain, j.Rule())
			}
		}
		for _, c := range t.all {
			for _, r := range c.Rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.Name, r)
			}
		}
		b.WriteString("COMMIT\n")
	}
	w.run(b.String(), w.command("-restore"))
}

func (w *world) inet() string { return map[uint8]string{4: "inet", 6: "inet6"}[w.family] }

func (w *world) createSets() string {
	s := w.o.Names.Sets(w.family)
	var b strings.Builder
	for _, name := range []string{s.Own, s.Egress, s.Ingress} {
		fmt.Fprintf(&b, "create %s hash:net,iface family %s skbinfo\n", name, w.inet())
	}
	fmt.Fprintf(&b, "create %s hash:net family %s skbinfo\n", s.Class, w.inet())
	return b.String()
}

// fillSets makes the entries of the sets those of the endpoints.
func (w *world) fillSets() {
	s := w.o.Names.Sets(w.family)
	var b strings.Builder
	b.WriteString(w.createSets())
	for _, name := range []string{s.Own, s.Egress, s.Ingress, s.Class} {
		fmt.Fprintf(&b, "flush %s\n", name)
	}
	for _, p := range []*lab.Pod{w.a, w.b} {
		if w.ready[p] {
			fmt.Fprintf(&b, "add %s %s,%s\n", s.Own, w.addr(p.Host), p.Iface())
		}
		for set, number := range map[string]uint32{s.Egress: w.egress[p], s.Ingress: w.ingress[p]} {
			if number != 0 {
				fmt.Fprintf(&b, "add %s %s,%s skbmark %v\n", set, w.addr(p.Host), p.Iface(), must(w.o.Marks.Slot(number))(w.t))
			}
		}
	}
	none, halves := uint32(classes.None4), []string{"0.0.0.0/1", "128.0.0.0/1"}
	if w.family == 6 {
		none, halves = classes.None6, []string{"::/1", "8000::/1"}
	}
	class := func(prefix string, id uint32) {
		fmt.Fprintf(&b, "add %s %s skbmark %v\n", s.Class, prefix, must(w.o.Marks.Class(id))(w.t))
	}
	for _, h := range halves {
		class(h, none)
	}
	for id, h := range map[uint32]*lab.Host{classOfA: w.a.Host, classOfB: w.b.Host, classOfX: w.x.Host} {
		class(w.addr(h).String(), id)
	}
	w.run(b.String(), "ipset", "restore", "-exist")
}

// change makes another configuration the one in force, with flows judged again.
func (w *world) change(do func()) {
	w.t.Helper()
	do()
	w.config.Generation++
	w.fillSets()
	w.load()
}

// soon is how long a packet that is dropped is waited for, and late one that is not.
const soon, late = 200 * time.Millisecond, 6 * time.Second

func within(want echo.Outcome) time.Duration {
	if want == echo.Timeout {
		return soon
	}
	return late
}

func (w *world) tcp(what string, from *lab.Host, to *lab.Host, port uint16, want echo.Outcome) {
	w.t.Helper()
	if got := echo.DialTCP(from, netip.AddrPortFrom(w.addr(to), port), within(want)); got.Outcome != want {
		w.t.Errorf("%s: %v, want %v (%v)", what, got.Outcome, want, got.Err)
	}
}

func (w *world) udp(what string, from *lab.Host, to *lab.Host, port uint16, want echo.Outcome) {
	w.t.Helper()
	if got := echo.ExchangeUDP(from, netip.AddrPortFrom(w.addr(to), port), []byte("x"), within(want)); got.Outcome != want {
		w.t.Errorf("%s: %v, want %v (%v)", what, got.Outcome, want, got.Err)
	}
}

// arrives sends a packet, or one in fragments, from a pod and checks whether it is seen at the host's interface.
func (w *world) arrives(what string, from *lab.Pod, at *lab.Host, packet []byte, want bool, fragments ...[]byte) {
	w.t.Helper()
	c := must(traffic.OpenCapture(at, "eth0"))(w.t)
	defer c.Close()
	if len(fragments) == 0 {
		fragments = [][]byte{packet}
	}
	if err := traffic.SendIP(from, fragments...); err != nil {
		w.t.Fatal(err)
	}
	tail := string(packet[len(packet)-16:])
	limit := soon
	if want {
		limit = late
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := c.Wait(ctx, func(frame []byte) bool { return strings.Contains(string(frame), tail) })
	if (err == nil) != want {
		w.t.Errorf("%s: arrives: %v, want %v", what, err == nil, want)
	}
}

func (w *world) packet(from, to netip.Addr, l4 testutil.Layer4) []byte {
	return testutil.Packet{Src: from, Dst: to, L4: l4, Payload: []byte("the payload of a packet")}.IP()
}
