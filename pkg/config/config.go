// Package config is the agent's configuration in layers: one table of settings, where their values come from, and
// which of several counts. It is pure: it is given the text of a file, the environment, the flags and the datastore's
// objects, and says what is in force, where each value comes from and what a change takes.
//
// From low to high the layers are: built in; FelixConfiguration "default", one that selects this node, "node." and this
// node's name; file; environment; flag.
package config

import (
	"strconv"
	"time"
)

// Config is every setting's value. It is immutable: the map in it belongs to whoever made the Config.
type Config struct {
	ConfigFile string
	Node       string // never empty once evaluated, unless the host's name is
	Datastore  string // directory or kubernetes
	Dir        string // of manifests
	Kubeconfig string // empty: the cluster this process runs in

	Instance  string // empty: the only agent of this machine
	BPFFS     string
	Socket    string // empty: the usual one of the instance
	Dataplane string // auto or bpf
	LogLevel  string // debug, info, warn or error

	HealthAddress  string // host:port; empty: off
	MetricsAddress string // host:port; empty: off
	PProf          bool
	// EndpointDropMetrics counts drops by endpoint, too.
	EndpointDropMetrics bool
	EndpointStatusDir   string // empty: off
	Events              bool

	InterfacePrefix string            // 1 to 8 bytes
	PodAnnotations  string            // whose annotations say addresses of pods: none, calico or aws
	MarkMask        uint32            // at least three bits, none of kube-proxy's
	MapSizes        map[string]uint32 // entries by name of the map; never nil

	KeepExisting  bool          // existing-connections: keep
	DropToHost    bool          // default-endpoint-to-host-action: Drop
	AllowEncap    bool          // allow-encap-from-workloads
	VXLANPort     uint16        // 0: UDP from pods is never taken for VXLAN
	TunnelPorts   []uint16      // further UDP ports of tunnels; at most maxTunnelPorts
	StrictMidFlow bool          // mid-flow: strict
	MidFlowGrace  time.Duration // 0: none
	NoShortcut    bool
	Interpret     bool
	EventRate     uint32 // per second and CPU
	FlowQuota     uint32 // 0: no limit
	Timeouts      Timeouts
	ResyncEvery   time.Duration // more than zero
	// DiscoveryEvery is how often, on average, a kind that the cluster does not serve is looked for; a second at least.
	DiscoveryEvery time.Duration
}

// Timeouts of flows by protocol and state; each at least a second.
type Timeouts struct {
	TCPSyn, TCPEstablished, TCPFin, UDP, ICMP, Other time.Duration
}

// Defaults are the values that are built in. Node is empty: it is the host's name.
func Defaults() Config {
	return Config{
		ConfigFile:      "/etc/margay/margay.yaml",
		Datastore:       "directory",
		BPFFS:           "/sys/fs/bpf",
		Dataplane:       "auto",
		LogLevel:        "info",
		HealthAddress:   "127.0.0.1:9096", // not 9098, which is Typha's: it is in the node's network, too
		MetricsAddress:  "127.0.0.1:9097",
		Events:          true,
		InterfacePrefix: "cali",
		PodAnnotations:  "none",
		MarkMask:        0x00001c00, // no bit of kube-proxy's (0xc000) nor of Calico's (0xffff0000)
		MapSizes:        map[string]uint32{},
		VXLANPort:       4789,
		TunnelPorts:     []uint16{6081, 8472}, // Geneve, and what Linux and flannel take for VXLAN
		MidFlowGrace:    2 * time.Minute,
		EventRate:       1000,
		FlowQuota:       1 << 18,
		Timeouts: Timeouts{
			TCPSyn:         20 * time.Second,
			TCPEstablished: time.Hour,
			TCPFin:         30 * time.Second,
			UDP:            60 * time.Second,
			ICMP:           5 * time.Second,
			Other:          10 * time.Minute,
		},
		ResyncEvery:    90 * time.Second,
		DiscoveryEvery: 2 * time.Minute,
	}
}

// Marks are the three bits of MarkMask that are used, the lowest first.
func (c Config) Marks() (seen, judge, own uint32) {
	bits, _ := lowestBits(c.MarkMask)
	return bits[0], bits[1], bits[2]
}

// Effect is what it takes for a changed value to be in force. Later ones include the earlier ones.
type Effect uint8

const (
	// Unchanged: nothing has to be done.
	Unchanged Effect = iota
	// Live: whoever uses the value is told.
	Live
	// Reopen: the dataplane is reopened with the new values; what is enforced stays so.
	Reopen
	// Restart: everything is started anew within the process; what is enforced stays so.
	Restart
)

// String returns "unchanged", "live", "reopen" or "restart".
func (e Effect) String() string {
	switch e {
	case Unchanged:
		return "unchanged"
	case Live:
		return "live"
	case Reopen:
		return "reopen"
	case Restart:
		return "restart"
	}
	return "effect " + strconv.Itoa(int(e))
}
