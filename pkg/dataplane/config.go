package dataplane

import (
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// Config configures a dataplane. Fields are named as the settings are that set them, where there is one.
type Config struct {
	BPFFS           string            // where bpffs is, or is to be mounted
	Instance        string            // tells agents on one machine apart; empty: the only one
	InterfacePrefix string            // of workload interfaces; 1 to 8 bytes
	MarkMask        uint32            // at least three bits, none of kube-proxy's
	MapSizes        map[string]uint32 // entries by name of the map; never nil

	HostDrop   bool   // default-endpoint-to-host-action: Drop
	NoShortcut bool   // send traffic between pods of this node through the host's stack
	EventRate  uint32 // per second and CPU
	// Interpret makes every table run by the in-kernel interpreter: for tests, and to rule tables out as a cause.
	Interpret bool
	// Wide gives every policy a wide table, for tests.
	Wide bool

	Tunnels
	Conntrack
	IPTables
}

// Tunnels configures the treatment of tunnels that pods make.
type Tunnels struct {
	AllowEncap  bool     // allow-encap-from-workloads: judge tunnels as anything else, instead of dropping them
	VXLANPort   uint16   // 0: UDP from pods is never taken for VXLAN
	TunnelPorts []uint16 // further UDP ports of tunnels; at most MaxTunnelPorts
}

// Conntrack configures the treatment of flows: how long known ones are kept, and whether unknown ones may continue.
type Conntrack struct {
	KeepExisting  bool          // existing-connections: keep
	StrictMidFlow bool          // mid-flow: strict, drop TCP packets of unknown connections
	MidFlowGrace  time.Duration // how long after a loss of all flows TCP in mid-flow may be an answer (D-20); 0: never
	FlowQuota     uint32        // most flows of one endpoint in the tables of open flows, so that none fills them; 0: no limit
	Timeouts      Timeouts
}

// IPTables configures the dataplane that enforces with iptables.
type IPTables struct {
	IptablesBackend  string // "auto", "legacy" or "nft"
	IptablesMarkMask uint32 // of packets and connections: 12 bits or more that are next to each other
	// MasqueradeMark is the mark bit of packets whose source kube-proxy is about to replace by the node's; 0: there is none.
	MasqueradeMark uint32
}

// Timeouts of flows by protocol and state; each at least a second.
type Timeouts struct {
	TCPSyn, TCPEstablished, TCPFin, UDP, ICMP, Other time.Duration
}

// MaxTunnelPorts is the room for further UDP ports of tunnels, beside VXLANPort.
const MaxTunnelPorts = 7

// Defaults are the values that are built in. They are defaults of the settings, too.
func Defaults() Config {
	return Config{
		BPFFS:           "/sys/fs/bpf",
		InterfacePrefix: model.DefaultInterfacePrefix,
		MarkMask:        0x00001c00, // no bit of kube-proxy's (0xc000) nor of Calico's (0xffff0000)
		MapSizes:        map[string]uint32{},
		EventRate:       1000,
		Tunnels: Tunnels{
			VXLANPort:   4789,
			TunnelPorts: []uint16{6081, 8472}, // Geneve, and the port of Linux and flannel for VXLAN
		},
		IPTables: IPTables{IptablesBackend: "auto", IptablesMarkMask: 0xffff0000, MasqueradeMark: 0x4000},
		Conntrack: Conntrack{
			MidFlowGrace: 2 * time.Minute,
			FlowQuota:    1 << 18, // half of one table
			Timeouts: Timeouts{
				TCPSyn:         20 * time.Second,
				TCPEstablished: time.Hour,
				TCPFin:         30 * time.Second,
				UDP:            60 * time.Second,
				ICMP:           5 * time.Second,
				Other:          10 * time.Minute,
			},
		},
	}
}

// Marks are the three bits of MarkMask that are used, the lowest first.
func (c Config) Marks() (seen, judge, own uint32) {
	bits, _ := LowestBits(c.MarkMask)
	return bits[0], bits[1], bits[2]
}

// LowestBits are the three lowest bits of mask, and how many of them there are.
func LowestBits(mask uint32) (bits [3]uint32, n int) {
	for ; mask != 0 && n < len(bits); n++ {
		bits[n] = mask & -mask
		mask &= mask - 1
	}
	return bits, n
}

// AllTunnelPorts are VXLANPort and TunnelPorts, each once and none of them 0.
func (t Tunnels) AllTunnelPorts() []uint16 {
	var all []uint16
	for _, port := range append([]uint16{t.VXLANPort}, t.TunnelPorts...) {
		if port != 0 && !slices.Contains(all, port) {
			all = append(all, port)
		}
	}
	return all
}
