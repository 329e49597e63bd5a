package walk_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// TestTheKernelAgrees loads random rulesets into both backends, sends packets of both families through them, and compares how
// often each rule matched with what walks say. MARGAY_E2E_SEED repeats a run, MARGAY_E2E_RULESETS makes it longer.
func TestTheKernelAgrees(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "ipset")
	seed := testutil.Number(t, "MARGAY_E2E_SEED", uint64(time.Now().UnixNano()))
	rulesets := int(testutil.Number(t, "MARGAY_E2E_RULESETS", 25))
	t.Logf("MARGAY_E2E_SEED=%d", seed)
	for i, backend := range []string{"legacy", "nft"} {
		testutil.RequireCommand(t, "iptables-"+backend+"-restore")
		for j, command := range []string{"iptables", "ip6tables"} {
			t.Run(command+"-"+backend, func(t *testing.T) {
				testutil.NetNS(t).Enter(t)
				k := newRouter(t, command+"-"+backend, rand.New(rand.NewPCG(seed, uint64(2*i+j))))
				for range rulesets {
					k.compare(t, k.ruleset())
				}
				t.Logf("%d packets, %d of them accepted", k.sent, k.accepted)
				if k.accepted*20 < k.sent || k.accepted*20 > k.sent*19 {
					t.Errorf("%d of %d packets were accepted: the rulesets prove little", k.accepted, k.sent)
				}
			})
		}
	}
}

// router is a namespace that forwards between two interfaces, va and vb. Packets are put into their other ends.
type router struct {
	command        string
	v6             bool
	random         *rand.Rand
	outside        map[string]int // sockets at the other ends, by the interface where packets come in
	sets           ipsets
	flows          int
	sent, accepted int
}

func run(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func newRouter(t *testing.T, command string, random *rand.Rand) *router {
	t.Helper()
	k := &router{command: command, v6: strings.HasPrefix(command, "ip6"), random: random, outside: map[string]int{}}
	for _, s := range []string{"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0",
		"ipv4/conf/all/send_redirects=0", "ipv4/conf/default/send_redirects=0"} {
		name, value, _ := strings.Cut(s, "=")
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for side, name := range map[int]string{1: "va", 2: "vb"} {
		run(t, fmt.Sprintf("ip link add %s address 02:00:00:00:00:02 type veth peer name %so", name, name))
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"o/disable_ipv6", []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, fmt.Sprintf("ip link set %s arp off up", name))
		run(t, fmt.Sprintf("ip link set %so up", name))
		run(t, fmt.Sprintf("ip addr add 10.%d.255.254/16 dev %s", side, name))
		run(t, fmt.Sprintf("ip addr add fd0%d::ffff/64 nodad dev %s", side, name))
		link, err := net.InterfaceByName(name + "o")
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		k.outside[name] = fd
	}
	k.makeSets(t)
	return k
}

// addr is the n-th host behind va or vb.
func (k *router) addr(side, n int) netip.Addr {
	if k.v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd0%d::%x", side, n+1))
	}
	return netip.AddrFrom4([4]byte{10, byte(side), byte((n + 1) >> 8), byte(n + 1)})
}

// ipsets are two sets: classes, prefixes with marks, and owners, prefixes with interfaces.
type ipsets struct {
	classes []entry
	owners  []owner
}

type owner struct{ prefix, link string }

func (s *ipsets) Lookup(set string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	switch {
	case set == "classes" && len(places) == 1:
		return prefixes{"classes": s.classes}.Lookup(set, places, p)
	case set == "owners" && len(places) == 2:
		longest := "" // only entries with the longest prefix count, whatever their interface
		for _, o := range s.owners {
			prefix := netip.MustParsePrefix(o.prefix)
			if prefix.Contains(p.Addr(places[0])) && (longest == "" || prefix.Bits() > netip.MustParsePrefix(longest).Bits()) {
				longest = o.prefix
			}
		}
		return walk.Entry{}, slices.Contains(s.owners, owner{longest, p.Interface(places[1])}), nil
	}
	return walk.Entry{}, false, errors.New("no such set")
}

// makeSets makes the kernel have the same sets. Addresses of flows count up, so short prefixes split them well.
func (k *router) makeSets(t *testing.T) {
	t.Helper()
	family, text := "inet", ""
	half := func(side int) []string {
		if k.v6 {
			return []string{fmt.Sprintf("fd0%d::/65", side), fmt.Sprintf("fd0%d::40/122", side), fmt.Sprintf("fd0%d::/64", side)}
		}
		return []string{fmt.Sprintf("10.%d.0.0/25", side), fmt.Sprintf("10.%d.0.64/26", side), fmt.Sprintf("10.%d.0.0/16", side)}
	}
	if k.v6 {
		family = "inet6"
	}
	a, b := half(1), half(2)
	k.sets.classes = []entry{{a[1], walk.Entry{Mark: 0x1, Mask: 0x3}}, {b[1], walk.Entry{Mark: 0x4, Mask: 0xc}}, {a[2], walk.Entry{Mark: 0x2, Mask: 0x7}}}
	k.sets.owners = []owner{{a[2], "va"}, {b[1], "vb"}, {a[1], "vb"}}
	text += "create classes hash:net family " + family + " skbinfo\ncreate owners hash:net,iface family " + family + "\n"
	for _, e := range k.sets.classes {
		text += fmt.Sprintf("add classes %s skbmark %#x/%#x\n", e.prefix, e.Mark, e.Mask)
	}
	for _, o := range k.sets.owners {
		text += fmt.Sprintf("add owners %s,%s\n", o.prefix, o.link)
	}
	cmd := exec.Command("ipset", "restore")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, text)
	}
}

// compare loads one ruleset, sends packets, and compares the counters.
func (k *router) compare(t *testing.T, text string) {
	t.Helper()
	cmd := exec.Command(k.command+"-restore", "-w")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, text)
	}
	tables := read(t, k.save(t)) // as the kernel prints them
	want := map[walk.Step]uint64{}
	stages := []walk.Stage{{Table: tables["mangle"], Chain: "FORWARD"}, {Table: tables["filter"], Chain: "FORWARD"}}
	for range 12 {
		for _, step := range k.play(t, stages) {
			want[step]++
		}
	}
	got := map[walk.Step]uint64{}
	agree := func() bool { got = k.counters(t); return maps.Equal(got, want) }
	for deadline := time.Now().Add(20 * time.Second); !agree(); { // the last packet may be on its way
		if time.Now().After(deadline) {
			k.disagree(t, text, got, want)
		}
	}
}

// disagree fails the test with the rules whose counts differ.
func (k *router) disagree(t *testing.T, text string, got, want map[walk.Step]uint64) {
	t.Helper()
	for step := range got {
		want[step] += 0
	}
	for _, step := range slices.SortedFunc(maps.Keys(want), func(a, b walk.Step) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		if got[step] != want[step] {
			t.Errorf("%s %s rule %d matched %d times in the kernel, %d times in walks", step.Table, step.Chain, step.Index+1, got[step], want[step])
		}
	}
	t.Fatalf("the ruleset:\n%s", text)
}

func (k *router) save(t *testing.T) (text string) {
	t.Helper()
	for _, table := range []string{"mangle", "filter"} {
		out, err := exec.Command(k.command+"-save", "-c", "-t", table).Output()
		if err != nil {
			t.Fatal(err)
		}
		text += string(out)
	}
	return text
}

// counters are those of rules and policies that were counted at all, but those of chains that these packets do not pass.
func (k *router) counters(t *testing.T) map[walk.Step]uint64 {
	t.Helper()
	tables, err := ruleset.Parse(k.save(t))
	if err != nil {
		t.Fatal(err)
	}
	counted := map[walk.Step]uint64{}
	for _, table := range tables {
		for _, chain := range table.Chains {
			if chain.BuiltIn() && chain.Name != "FORWARD" {
				continue
			}
			for i, rule := range chain.Rules {
				if n := rule.Counter.Packets; n > 0 {
					counted[walk.Step{Table: table.Name, Chain: chain.Name, Index: i}] = n
				}
			}
			if n := chain.Counter.Packets; n > 0 && chain.BuiltIn() {
				counted[walk.Step{Table: table.Name, Chain: chain.Name, Index: -1}] = n
			}
		}
	}
	return counted
}
