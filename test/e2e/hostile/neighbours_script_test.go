package hostile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	tenantPods    = 3
	ruleCount     = 8_000 // of each of the tenant's policies: each rule a CIDR list and a port of its own
	tenantPause   = 10 * time.Millisecond
	tenantBurst   = 20 // frames, so 2,000 packets a second
	tenantChange  = time.Second
	policyTurns   = 8       // different policies of each pod
	preparedBurst = 1 << 12 // 40 s of half-open flows
)

// script is what a tenant's process does. It is a process of its own, in the network namespace of the tenant's first pod, and makes all
// frames and manifests before it begins: it has nothing in common with what measures but the machine.
type script struct {
	Dir      string // of the manifests
	AtLimits bool   // else its policies select no pod, and its packets are of one flow
	From, To []netip.Addr
	FromMAC  net.HardwareAddr // of the first pod, which sends
}

// scriptEnv has the script of a process that plays a tenant.
const scriptEnv = "MGY_TENANT_SCRIPT"

func init() {
	text := os.Getenv(scriptEnv)
	if text == "" {
		return
	}
	var s script
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "play the tenant:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run follows the commands play and rest on the standard input, until its end.
func (s script) run() error {
	fd, err := openEth0()
	if err != nil {
		return err
	}
	bursts, changes := s.bursts(), s.changes()
	runtime.GC()
	fmt.Println("prepared")
	commands := make(chan string)
	go func() {
		defer close(commands)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			commands <- in.Text()
		}
	}()
	send, change := time.NewTicker(tenantPause), time.NewTicker(tenantChange)
	next := func(n int) error { return s.put(changes[n%len(changes)]) }
	for playing, sent, written := false, 0, 0; ; {
		select {
		case command, ok := <-commands:
			if !ok {
				return nil
			}
			if playing = command == "play"; playing {
				written, err = written+1, next(written)
			}
			fmt.Println(command + "ing")
		case <-change.C:
			if playing {
				written, err = written+1, next(written)
			}
		case <-send.C:
			if playing {
				sent++
				err = sendAll(fd, bursts[sent%len(bursts)])
			}
		}
		if err != nil {
			return err
		}
	}
}

func openEth0() (fd int, err error) {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return 0, err
	}
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: eth0.Index})
	}
	return fd, os.NewSyscallError("open a packet socket on eth0", err)
}

func sendAll(fd int, frames [][]byte) error {
	for _, f := range frames {
		if _, err := unix.Write(fd, f); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return os.NewSyscallError("send a frame", err)
		}
	}
	return nil
}

// bursts are the frames to be sent, by turn.
func (s script) bursts() (all [][][]byte) {
	if !s.AtLimits {
		p := testutil.Packet{Src: addrOf(s.From, false), Dst: addrOf(s.To, false), L4: testutil.UDP{SrcPort: 1, DstPort: 2}}
		p.SrcMAC, p.DstMAC = s.FromMAC, lab.HostMAC
		var burst [][]byte
		for range tenantBurst {
			burst = append(burst, p.Bytes())
		}
		return [][][]byte{burst}
	}
	for i := range preparedBurst {
		v6 := i&1 != 0
		all = append(all, append(s.halfOpen(v6, tenantBurst-2), s.fragments(v6, 2)...))
	}
	return all
}

// halfOpen are first packets of flows to an address that does not answer.
func (s script) halfOpen(v6 bool, n int) (frames [][]byte) {
	to := netip.MustParseAddr("192.0.2.200")
	if v6 {
		to = netip.MustParseAddr("2001:db8::200")
	}
	for range n {
		p := testutil.Packet{Src: addrOf(s.From, v6), Dst: to, L4: testutil.TCP{SrcPort: uint16(rand.Uint32()), DstPort: uint16(rand.Uint32()), Flags: testutil.SYN}}
		p.SrcMAC, p.DstMAC = s.FromMAC, lab.HostMAC
		frames = append(frames, p.Bytes())
	}
	return frames
}

func (s script) fragments(v6 bool, n int) (frames [][]byte) {
	for range n {
		p := testutil.Packet{Src: addrOf(s.From, v6), Dst: addrOf(s.To, v6), ID: rand.Uint32(), L4: testutil.UDP{SrcPort: 1, DstPort: 2}, Payload: make([]byte, 64)}
		p.SrcMAC, p.DstMAC = s.FromMAC, lab.HostMAC
		frames = append(frames, p.Fragments(32)[0])
	}
	return frames
}

// manifest is a file of the directory, and what is written into it.
type manifest struct{ name, text string }

// changes are the manifests to be written, by turn: policies of one pod after the other, and between them objects that policy refers to.
func (s script) changes() (all []manifest) {
	for turn := range policyTurns * tenantPods {
		all = append(all, manifest{fmt.Sprintf("policy-evil.t%d", turn%tenantPods), s.policy(turn%tenantPods, turn)})
		name, text := s.object(turn + 1)
		all = append(all, manifest{name, text})
	}
	return all
}

// policy is a manifest as large as the limits let it be, other than that of the turn before. It allows what the tenant's own flows need.
func (s script) policy(pod, turn int) string {
	app := fmt.Sprintf("t%d", pod)
	if !s.AtLimits {
		app = fmt.Sprintf("n%d", pod)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: t%d, namespace: evil}\n", pod)
	fmt.Fprintf(&b, "spec: {podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress, Egress], egress: [{}], ingress: [{from: [{podSelector: {}}]}", app)
	for k := range ruleCount {
		fmt.Fprintf(&b, ", {from: [{ipBlock: {cidr: 172.%d.%d.0/%d}}], ports: [{port: %d}]}", 16+k>>8, k&255, 24+(k+turn)%8, 1+(k*7+turn)%65535)
	}
	b.WriteString("]}\n")
	return b.String()
}

// put puts a manifest in place at once.
func (s script) put(m manifest) error {
	path := filepath.Join(s.Dir, m.name)
	if err := os.WriteFile(path+".tmp", []byte(m.text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path+".yaml")
}
