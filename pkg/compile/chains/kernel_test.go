package chains_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// backend is one iptables for one family.
type backend struct {
	name   string
	family uint8
	shape  chains.Shape
}

func (b backend) command(what string) string {
	six := map[uint8]string{4: "", 6: "6"}[b.family]
	return "ip" + six + "tables-" + b.name + what
}

var backends = []backend{
	{"legacy", 4, chains.Legacy()}, {"legacy", 6, chains.Legacy()}, {"nft", 4, chains.NFT()}, {"nft", 6, chains.NFT()},
}

// node is a namespace whose own packets are led to the chains under test: the socket's mark says to which slot.
type node struct {
	backend
	t    *testing.T
	o    *chains.Options
	sock int
}

func run(t testing.TB, input string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s\n%.200s", command, err, errs.String(), input)
	}
	return out.String()
}

func newNode(t *testing.T, b backend) *node {
	testutil.Privileged(t)
	testutil.RequireCommand(t, b.command("-restore"))
	testutil.RequireCommand(t, "ipset")
	testutil.NetNS(t).Enter(t)
	n := &node{backend: b, t: t, o: optionsFor(t, b.family, b.shape)}
	run(t, "", "ip", "link", "add", "d0", "type", "veth", "peer", "d1")
	run(t, "", "ip", "link", "set", "d1", "up")
	run(t, "", "ip", "link", "set", "d0", "up")
	run(t, "", "ip", "-6", "addr", "add", "fd99::1/64", "dev", "d0", "nodad") // the kernel looks for an address of its own
	run(t, "", "ip", map[uint8]string{4: "-4", 6: "-6"}[b.family], "route", "add", "default", "dev", "d0")
	domain, level, option := unix.AF_INET, unix.SOL_IP, unix.IP_HDRINCL
	if b.family == 6 {
		domain, level, option = unix.AF_INET6, unix.SOL_IPV6, 36 // IPV6_HDRINCL
	}
	var err error
	if n.sock, err = unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(n.sock) })
	if err := unix.SetsockoptInt(n.sock, level, option, 1); err != nil {
		t.Fatal(err)
	}
	return n
}

// classify makes the set of classes.
func (n *node) classify(entries map[netip.Prefix]uint32) {
	set := n.o.Names.Sets(n.family).Class
	var b strings.Builder
	fmt.Fprintf(&b, "create %s hash:net family %s skbinfo\n", set, map[uint8]string{4: "inet", 6: "inet6"}[n.family])
	for p, id := range entries {
		v, err := n.o.Marks.Class(id)
		if err != nil {
			n.t.Fatal(err)
		}
		fmt.Fprintf(&b, "add %s %s skbmark %v\n", set, p, v)
	}
	run(n.t, b.String(), "ipset", "restore")
}

// classifyRemotes makes it for the addresses of policytest.
func (n *node) classifyRemotes() {
	entries := map[netip.Prefix]uint32{}
	halves := policytest.Prefixes("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")
	for _, p := range halves {
		if p.Addr().Is4() == (n.family == 4) {
			entries[p] = map[uint8]uint32{4: classes.None4, 6: classes.None6}[n.family]
		}
	}
	for i, a := range policytest.Remotes {
		if a.Is4() == (n.family == 4) {
			entries[netip.PrefixFrom(a, a.BitLen())] = classID(i)
		}
	}
	run(n.t, "", "ipset", "destroy")
	n.classify(entries)
}

// load makes the chains of slots the only ones, with those that they go to, and counters at 0. before are chains that packets
// pass before.
func (n *node) load(all book, slots []uint32, before ...string) {
	d := chains.NewDispatch(chains.IngressSlots, n.o)
	for _, s := range slots {
		if _, err := d.Add(s); err != nil {
			n.t.Fatal(err)
		}
	}
	every := book{}
	every.set(d.Chains())
	for name, c := range all {
		every[name] = c
	}
	for _, s := range slots { // those of which nothing is to be tried
		if name := n.o.Names.Chain(fmt.Sprintf("s%d", s)); len(every[name].Rules) == 0 {
			every[name] = chains.Chain{Name: name}
		}
	}
	every.set(lookups(n.t, n.o))
	for _, verdict := range []string{"ok", "deny"} {
		every[n.o.Names.Chain(verdict)] = chains.Chain{Name: n.o.Names.Chain(verdict), Rules: []string{"-j DROP"}}
	}
	var b strings.Builder
	b.WriteString("*mangle\n:OUTPUT ACCEPT [0:0]\n")
	for _, name := range append(slices.Collect(maps.Keys(every)), before...) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
	}
	for i, name := range append([]string{"OUTPUT"}, before...) {
		to := append(before, d.Name())[i]
		fmt.Fprintf(&b, "-A %s -j %s\n-A %s -j DROP\n", name, to, name)
	}
	for name, c := range every {
		for _, rule := range c.Rules {
			fmt.Fprintf(&b, "-A %s %s\n", name, rule)
		}
	}
	b.WriteString("COMMIT\n")
	run(n.t, b.String(), n.command("-restore"))
}

// counters are packets and bytes at each rule of each chain.
func (n *node) counters() map[string][]counter {
	out := map[string][]counter{}
	for _, m := range counted.FindAllStringSubmatch(run(n.t, "", n.command("-save"), "-c", "-t", "mangle"), -1) {
		packets, _ := strconv.Atoi(m[1])
		size, _ := strconv.Atoi(m[2])
		out[m[3]] = append(out[m[3]], counter{packets, size})
	}
	return out
}

var counted = regexp.MustCompile(`(?m)^\[(\d+):(\d+)\] -A (\S+)`)

type counter struct{ packets, bytes int }

// send sends a packet of a probe with so many bytes of payload, and returns its length.
func (n *node) send(p probe, payload int) int {
	pkt := p.opens
	mark := p.slot << 16
	if p.answers {
		pkt.Src, pkt.Dst, pkt.SrcPort, pkt.DstPort = pkt.Dst, pkt.Src, pkt.DstPort, pkt.SrcPort
		mark |= 0x40000000
	}
	b := bytesOf(pkt, p.answers, payload)
	if err := unix.SetsockoptInt(n.sock, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		n.t.Fatal(err)
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: addr4(pkt.Dst)}
	if n.family == 6 {
		to = &unix.SockaddrInet6{Addr: pkt.Dst.As16()}
	}
	if err := unix.Sendto(n.sock, b, 0, to); err != nil && err != unix.EPERM {
		n.t.Fatalf("send %v: %v", p, err)
	}
	return len(b)
}

func addr4(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}

func bytesOf(pkt model.Packet, answers bool, payload int) []byte {
	p := testutil.Packet{Src: pkt.Src, Dst: pkt.Dst, Payload: make([]byte, payload)}
	switch {
	case pkt.Protocol == model.ProtoTCP:
		p.L4 = testutil.TCP{SrcPort: pkt.SrcPort, DstPort: pkt.DstPort, Flags: testutil.SYN}
	case pkt.Protocol == model.ProtoUDP:
		p.L4 = testutil.UDP{SrcPort: pkt.SrcPort, DstPort: pkt.DstPort}
	case pkt.Protocol == model.ProtoSCTP:
		p.L4 = testutil.SCTP{SrcPort: pkt.SrcPort, DstPort: pkt.DstPort}
	case pkt.Protocol == model.ProtoICMP && pkt.Src.Is4(), pkt.Protocol == model.ProtoICMPv6 && pkt.Src.Is6():
		reply := map[uint8]uint8{8: 0, 128: 129}
		h := testutil.ICMP{Type: pkt.ICMPType, Code: pkt.ICMPCode}
		if answers {
			h.Type = reply[h.Type]
		}
		p.L4 = h
	default:
		p.L4 = testutil.Raw(pkt.Protocol)
	}
	return p.IP()
}

// check sends the probes of each slot and compares what the rules have counted. The lengths of the packets for a slot are such
// that their sum says which of them a rule has counted.
func (n *node) check(all book, probes [][]probe) {
	want := map[decided]counter{}
	for _, ofSlot := range probes {
		for i, p := range ofSlot {
			size := n.send(p, 40+1<<i)
			k := decided{p.slot, p.want}
			want[k] = counter{want[k].packets + 1, want[k].bytes + size}
		}
	}
	got := map[decided]counter{}
	counters := n.counters()
	for name, c := range all {
		if len(counters[name]) != len(c.Rules) {
			n.t.Fatalf("chain %s has %d rules in the kernel, and should have %d", name, len(counters[name]), len(c.Rules))
		}
		for i, d := range c.Decides {
			if at := counters[name][i]; d.Action != 0 && at.packets > 0 {
				k := decided{slotOf(name), d}
				got[k] = counter{got[k].packets + at.packets, got[k].bytes + at.bytes}
			}
		}
	}
	for k, w := range want {
		if got[k] != w {
			n.t.Errorf("%s: %v counted %v, want %v", n.command(""), k, got[k], w)
		}
		delete(got, k)
	}
	for k, g := range got {
		n.t.Errorf("%s: %v counted %v, want nothing", n.command(""), k, g)
	}
}

type decided struct {
	slot uint32
	by   chains.Decision
}

func slotOf(chain string) uint32 {
	digits := strings.SplitN(strings.TrimPrefix(chain, "mgyA-s"), "-", 2)[0]
	slot, _ := strconv.ParseUint(digits, 10, 32)
	return uint32(slot)
}
