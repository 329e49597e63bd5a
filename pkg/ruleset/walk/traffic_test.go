package walk_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// ruleset is a random ruleset of two tables. Rules ask of what the packets of play differ in.
func (k *router) ruleset() string {
	text := "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 7777 -j CT --notrack\nCOMMIT\n"
	for _, table := range []string{"mangle", "filter"} {
		chains := []string{"FORWARD", "a", "b", "c", "d"}
		policy := k.pick("ACCEPT", "ACCEPT", "DROP")
		head, rules := "*"+table+"\n:FORWARD "+policy+" [0:0]\n", ""
		for i, chain := range chains {
			if i > 0 {
				head += ":" + chain + " - [0:0]\n"
			}
			for range 1 + k.random.IntN(6) {
				rules += "-A " + chain + k.rule(table, chains[i+1:]) + "\n"
			}
		}
		text += head + rules + "COMMIT\n"
	}
	return text
}

func (k *router) pick(words ...string) string { return words[k.random.IntN(len(words))] }

func (k *router) not(text string) string {
	if k.random.IntN(3) == 0 {
		i := strings.Index(text, "--")
		if i < 0 { // -s, -d, -i, -o
			i = 0
		}
		return text[:i] + "! " + text[i:]
	}
	return text
}

func (k *router) rule(table string, chains []string) string {
	var b strings.Builder
	protocol := k.pick("", "", "", "tcp", "udp", "icmp", "200")
	switch {
	case protocol == "icmp" && k.v6:
		b.WriteString(" -p ipv6-icmp")
	case protocol != "":
		b.WriteString(" -p " + protocol)
	case k.random.IntN(5) == 0:
		b.WriteString(" ! -p udp")
	}
	ends := map[bool][]string{false: {"-s 10.1.0.0/25", "-d 10.2.0.64/26", "-s 10.2.0.0/16"}, true: {"-s fd01::/121", "-d fd02::40/122", "-s fd02::/64"}}[k.v6]
	if k.random.IntN(4) == 0 {
		b.WriteString(" " + k.not(k.pick(append(ends, "-i va", "-i v+", "-o vb", "-o vx+", "-i vb")...)))
	}
	for range k.random.IntN(3) {
		condition := k.condition(protocol)
		if match := strings.Join(strings.Fields(condition)[:2], " "); !strings.Contains(b.String(), match+" ") {
			b.WriteString(" " + condition) // iptables-nft-save prints two of the same match as one
		}
	}
	b.WriteString(k.target(table, protocol, chains))
	return b.String()
}

func (k *router) condition(protocol string) string {
	switch k.random.IntN(9) {
	case 0:
		return "-m mark " + k.not("--mark "+k.pick("0x0/0x3", "0x1/0x3", "0x2", "0x4/0xc", "0x8/0x4"))
	case 1:
		return "-m connmark " + k.not("--mark "+k.pick("0x0/0x3", "0x1/0x1", "0x2/0x6"))
	case 2:
		return "-m conntrack " + k.pick(k.not("--ctstate "+k.pick("NEW", "ESTABLISHED", "INVALID", "UNTRACKED", "NEW,INVALID", "RELATED,ESTABLISHED", "DNAT")),
			"--ctdir ORIGINAL", "--ctdir REPLY", k.not("--ctproto 17"), "--ctstate INVALID,ESTABLISHED --ctdir REPLY", "! --ctstate NEW --ctproto 6")
	case 3:
		return "-m set " + k.not("--match-set "+k.pick("classes src", "classes dst", "owners src,src", "owners dst,dst", "owners src,dst"))
	case 4:
		return k.ofProtocol(protocol)
	case 5:
		return "-m comment --comment \"a word\""
	case 6:
		if protocol == "tcp" || protocol == "udp" {
			return "-m multiport " + k.not("--"+k.pick("sports", "dports", "ports")+" "+k.pick("80,443", "1000:2000,7777", "53"))
		}
	}
	return k.ofProtocol(protocol)
}

func (k *router) ofProtocol(protocol string) string {
	ports := k.pick("--dport 80", "--dport 443:7777", "--sport 1000:1500", "--dport 0:100", "--sport 1500:")
	switch {
	case protocol == "tcp" && k.random.IntN(2) == 0:
		return "-m tcp " + k.not("--tcp-flags "+k.pick("FIN,SYN,RST,ACK SYN", "ALL ACK", "SYN,ACK NONE", "RST RST", "ACK,SYN SYN"))
	case protocol == "tcp" || protocol == "udp":
		return "-m " + protocol + " " + k.not(ports)
	case protocol == "icmp" && k.v6:
		return "-m icmp6 " + k.not("--icmpv6-type "+k.pick("128", "129", "128/0", "129/1"))
	case protocol == "icmp":
		return "-m icmp " + k.not("--icmp-type "+k.pick("8", "0", "8/0", "0/1", "any"))
	}
	return "-m comment --comment y"
}

func (k *router) target(table, protocol string, chains []string) string {
	if len(chains) > 0 && k.random.IntN(3) > 0 {
		return " " + k.pick("-j", "-g") + " " + k.pick(chains...)
	}
	switch k.random.IntN(8) {
	case 0:
		return " -j DROP"
	case 1:
		return " -j ACCEPT"
	case 2:
		return " -j RETURN"
	case 3:
		return " -j CONNMARK --set-xmark " + k.pick("0x1/0x3", "0x2/0x2", "0x3/0x0")
	case 4:
		if table == "mangle" {
			return " -j SET --map-set classes " + k.pick("src", "dst") + " --map-mark"
		}
		if protocol == "tcp" {
			return " -j REJECT --reject-with tcp-reset"
		}
		return " -j REJECT"
	case 5:
		return ""
	}
	return " -j MARK --set-xmark " + k.pick("0x1/0x3", "0x2/0xffffffff", "0x5/0x1", "0x4/0xc", "0x0/0xf")
}

// flow is what is known of the packets of one pair of ends.
type flow struct {
	n          int // of its hosts
	protocol   uint8
	src, dst   uint16
	connection *walk.Connection // nil: none is known to the kernel
	reply      bool             // the direction of the connection's first packet
	answered   bool
}

// play sends the packets of one flow, and returns the rules that they match.
func (k *router) play(t *testing.T, stages []walk.Stage) (path []walk.Step) {
	t.Helper()
	k.flows++
	f := &flow{n: k.flows, src: uint16(1000 + k.random.IntN(1000)), dst: []uint16{80, 443, 53, 7777, 1200}[k.random.IntN(5)]}
	f.protocol = []uint8{testutil.ProtoTCP, testutil.ProtoTCP, testutil.ProtoUDP, testutil.ProtoUDP, testutil.ProtoICMP, 200}[k.random.IntN(6)]
	if f.protocol == testutil.ProtoICMP && k.v6 {
		f.protocol = testutil.ProtoICMPv6
	}
	if f.protocol == testutil.ProtoTCP {
		if k.random.IntN(2) == 0 { // one packet out of nowhere
			flags := []uint8{testutil.SYN, testutil.ACK, testutil.PSH | testutil.ACK, testutil.RST, testutil.SYN | testutil.ACK, testutil.FIN | testutil.ACK}
			return k.send(t, stages, f, k.random.IntN(2) == 0, flags[k.random.IntN(len(flags))])
		}
		for i, flags := range []uint8{testutil.SYN, testutil.SYN | testutil.ACK, testutil.ACK} {
			path = append(path, k.send(t, stages, f, i == 1, flags)...)
		}
		return path
	}
	reply := false
	for range 1 + k.random.IntN(5) {
		path = append(path, k.send(t, stages, f, reply, 0)...)
		reply = k.random.IntN(2) == 0
	}
	return path
}

// send puts one packet of the flow into the kernel, and walks.
func (k *router) send(t *testing.T, stages []walk.Stage, f *flow, reply bool, flags uint8) []walk.Step {
	t.Helper()
	from, to, in, out, srcPort, dstPort := 1, 2, "va", "vb", f.src, f.dst
	if reply {
		from, to, in, out, srcPort, dstPort = to, from, out, in, dstPort, srcPort
	}
	p := walk.Packet{In: in, Out: out, Src: k.addr(from, f.n), Dst: k.addr(to, f.n), Protocol: f.protocol, TCP: flags}
	frame := testutil.Packet{Src: p.Src, Dst: p.Dst}
	switch f.protocol {
	case testutil.ProtoTCP:
		seq, ack := uint32(100), uint32(200) // of the opener; the answer's are the other way round
		if flags&testutil.SYN == 0 {
			seq++
		}
		if ack++; reply {
			seq, ack = 200, 101
		}
		frame.L4 = testutil.TCP{SrcPort: srcPort, DstPort: dstPort, Flags: flags, Seq: seq, Ack: ack}
		p.Ports = walk.Ports{Src: srcPort, Dst: dstPort}
	case testutil.ProtoUDP:
		frame.L4 = testutil.UDP{SrcPort: srcPort, DstPort: dstPort}
		p.Ports = walk.Ports{Src: srcPort, Dst: dstPort}
	case 200:
		frame.L4, frame.Payload = testutil.Raw(200), []byte("data")
	default:
		p.ICMP.Type = map[uint8][2]uint8{testutil.ProtoICMP: {8, 0}, testutil.ProtoICMPv6: {128, 129}}[f.protocol][map[bool]int{true: 1}[reply]]
		frame.L4 = testutil.ICMP{Type: p.ICMP.Type, ID: f.src}
	}
	f.track(&p, reply)
	r, err := walk.Walk(stages, p, &k.sets)
	if err != nil {
		t.Fatal(err)
	}
	f.walked(&p, reply, r)
	if k.sent++; r.Verdict == walk.Accept {
		k.accepted++
	}
	if _, err := unix.Write(k.outside[in], frame.Bytes()); err != nil {
		t.Fatal(fmt.Errorf("send into %s: %w", in, err))
	}
	return r.Path
}

// track says what connection tracking knows at the packet.
func (f *flow) track(p *walk.Packet, reply bool) {
	switch {
	case p.Protocol == testutil.ProtoUDP && p.Ports.Dst == 7777:
		p.Untracked = true
	case f.connection != nil:
		f.answered = f.answered || reply != f.reply
		c := *f.connection
		c.Reply, c.State = reply != f.reply, walk.New
		if f.answered {
			c.State = walk.Established
		}
		p.Connection = &c
	case p.Protocol == testutil.ProtoTCP && p.TCP != testutil.SYN && p.TCP&^testutil.PSH != testutil.ACK:
	case (p.Protocol == testutil.ProtoICMP || p.Protocol == testutil.ProtoICMPv6) && reply:
	default:
		p.Connection = &walk.Connection{Protocol: p.Protocol}
	}
}

// walked notes what the packet has left: a connection is kept once its first packet has gone through.
func (f *flow) walked(p *walk.Packet, reply bool, r walk.Result) {
	if p.Connection == nil || f.connection == nil && r.Verdict != walk.Accept {
		return
	}
	if f.connection == nil {
		f.reply = reply
	}
	f.connection = &walk.Connection{Protocol: p.Protocol, Mark: r.ConnMark}
}
