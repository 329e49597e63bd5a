//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

const floodPort = 80

// flood is one pod that serves floodPort to everybody, its established flows, and SYNs of addresses that do not exist.
type flood struct {
	*node
	fromPod, toPod *ebpf.Program
	pod            netip.Addr
}

// Flood measures P12: how many of the established flows a flood of spoofed SYNs displaces. TCP packets of unknown flows
// are dropped here, so that a flow that was forgotten shows as a packet lost.
func Flood(o Options) (results []report.Result, err error) {
	n, err := openNode(o, "flood", func(c *dataplane.Config) { c.StrictMidFlow = true })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	f := &flood{node: n, pod: podAddr(0)}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	for i := range o.Flows {
		if err := f.establish(i); err != nil {
			return nil, fmt.Errorf("establish flow %d: %w", i, err)
		}
	}
	lost, err := f.lost(o.Flows)
	if err != nil {
		return nil, err
	}
	if lost > 0 {
		return nil, fmt.Errorf("%d of %d flows lost before the flood", lost, o.Flows)
	}
	packets, err := f.pour(o.Flood, o.Flows)
	if err != nil {
		return nil, err
	}
	if lost, err = f.lost(o.Flows); err != nil {
		return nil, err
	}
	o.Log("flood: %d SYNs poured, %d packets of active flows sent meanwhile", o.Flood, packets.sent)
	what := fmt.Sprintf("%d spoofed SYNs, %d established flows: ", o.Flood, o.Flows)
	return []report.Result{
		report.Required("P12", what+"flows lost", "flows", report.Exact(float64(lost)), 0),
		report.Required("P12", what+"packets of the active half lost", "packets", report.Exact(float64(packets.lost)), 0),
	}, nil
}

func (f *flood) prepare() error {
	tcp := model.ProtoTCP
	open := []model.Rule{{Action: model.Allow, Protocol: &tcp,
		Destination: model.Entity{Ports: []model.PortRange{{Lo: floodPort, Hi: floodPort}}}}}
	if err := f.apply(f.addPod("server", 1000, f.pod), policyFor("server", open)); err != nil {
		return err
	}
	e, err := f.entry("server")
	if err != nil {
		return err
	}
	if f.fromPod, err = f.program(bpf.MargayProgFromPod); err != nil {
		return err
	}
	if f.toPod, err = f.program(bpf.MargayProgToPod); err != nil {
		return err
	}
	return f.dp.SetKernel(e)
}

// client is the i-th real client's end.
func client(i int) (netip.Addr, uint16) {
	return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), uint16(20000 + i%1000)
}

// packet sends one packet of a real flow, to the pod or from it.
func (f *flood) packet(i int, fromPod bool, flags uint8) (action, error) {
	addr, port := client(i)
	if fromPod {
		return send(f.fromPod, testutil.Packet{Src: f.pod, Dst: addr,
			L4: testutil.TCP{SrcPort: floodPort, DstPort: port, Flags: flags}}.Bytes(), &fromHere)
	}
	return send(f.toPod, testutil.Packet{Src: addr, Dst: f.pod,
		L4: testutil.TCP{SrcPort: port, DstPort: floodPort, Flags: flags}}.Bytes(), &forwarded)
}

// establish does the handshake.
func (f *flood) establish(i int) error {
	for step, flags := range []uint8{testutil.SYN, testutil.SYN | testutil.ACK, testutil.ACK} {
		got, err := f.packet(i, step == 1, flags)
		if err != nil {
			return err
		}
		if got != pass {
			return fmt.Errorf("step %d of the handshake: the program says %d", step, got)
		}
	}
	return nil
}

// lost counts the flows that are no longer among the open ones, or whose next packet is dropped either way.
func (f *flood) lost(flows int) (int, error) {
	open := map[netip.AddrPort]bool{}
	for flow, err := range f.dp.Maps().Flows.All() {
		if err != nil {
			return 0, err
		}
		if flow.Open {
			open[flow.A], open[flow.B] = true, true
		}
	}
	lost := 0
	for i := range flows {
		to, err := f.packet(i, false, testutil.ACK)
		if err != nil {
			return 0, err
		}
		from, err := f.packet(i, true, testutil.ACK)
		if err != nil {
			return 0, err
		}
		addr, port := client(i)
		if to != pass || from != pass || !open[netip.AddrPortFrom(addr, port)] {
			lost++
		}
	}
	return lost, nil
}

type packetCount struct{ sent, lost int }

// pour sends the flood, and between its packets some of the first half of the flows; the other half is idle.
func (f *flood) pour(syns, flows int) (count packetCount, err error) {
	const every = 100
	frame := testutil.Packet{Src: stranger, Dst: f.pod, L4: testutil.TCP{SrcPort: 1, DstPort: floodPort, Flags: testutil.SYN}}.Bytes()
	const source, port = 14 + 12, 14 + 20 // offsets in the frame
	for i := range syns {
		binary.BigEndian.PutUint32(frame[source:], 0x14000000|uint32(i)*7) // 20.0.0.0/8 and beyond: no two alike
		binary.BigEndian.PutUint16(frame[port:], uint16(1024+i%60000))
		got, err := send(f.toPod, frame, &forwarded)
		if err != nil {
			return count, err
		}
		if got != pass {
			return count, fmt.Errorf("SYN %d: the program says %d", i, got)
		}
		if i%every == 0 && flows > 1 {
			got, err := f.packet(i/every%(flows/2), i/every%2 == 0, testutil.ACK)
			if err != nil {
				return count, err
			}
			count.sent++
			if got != pass {
				count.lost++
			}
		}
	}
	stats, err := f.dp.Maps().RuleStats.Below(1 << 10)
	if err != nil {
		return count, err
	}
	judged := uint64(0)
	for _, c := range stats {
		judged += c.Packets
	}
	if judged < uint64(syns+flows) {
		return count, fmt.Errorf("only %d of %d SYNs were judged as new flows", judged, syns)
	}
	return count, nil
}
