package config

import (
	"maps"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
)

// objectSettings are where objects come from and how they are read; those of etcd are beside them.
var objectSettings = []*Setting{
	notInFile(textSetting("config-file", Restart, func(c *Config) *string { return &c.ConfigFile },
		"YAML file of settings; the default file may be missing")),
	textSetting("node", Restart, func(c *Config) *string { return &c.Node },
		"name of this node (default: the host name, in lower case)"),
	oneOf("datastore", Restart, func(c *Config) *string { return &c.Datastore },
		"directory, kubernetes or etcd: where objects come from", "directory", "kubernetes", "etcd"),
	textSetting("dir", Restart, func(c *Config) *string { return &c.Dir },
		"directory of manifests"),
	textSetting("kubeconfig", Restart, func(c *Config) *string { return &c.Kubeconfig },
		"kubeconfig file for the API server (default: the service account of the agent's pod)"),
	duration("discovery-every", Restart, func(c *Config) *time.Duration { return &c.DiscoveryEvery }, time.Second,
		"how often the agent looks for kinds that the cluster does not serve yet (with datastore kubernetes)"),
	newSetting("interface-prefix", Restart, func(c *Config) *string { return &c.InterfacePrefix }, parsePrefix, itself,
		"prefix of the names of workload interfaces").like(prefixPattern).from(felixPrefix, "interfacePrefix"),
	oneOf("pod-ips-from-annotations", Restart, func(c *Config) *string { return &c.PodAnnotations },
		"none, calico or aws: CNI plugin whose pod annotations hold addresses that the kubelet has not reported yet",
		"none", "calico", "aws"),
}

// agentSettings distinguish agents of one machine.
var agentSettings = []*Setting{
	newSetting("instance", Restart, func(c *Config) *string { return &c.Instance }, ParseInstance, itself,
		"name of the agent, if several run on this machine").like(instancePattern),
	textSetting("bpffs", Restart, func(c *Config) *string { return &c.BPFFS },
		"mount point of the BPF file system"),
	newSetting("socket", Restart, func(c *Config) *string { return &c.Socket }, ParseSocket, itself,
		"unix socket of the agent (default /run/margay[-INSTANCE]/agent.sock)"),
}

// enforcementSettings are how policy is enforced.
var enforcementSettings = []*Setting{
	named(newSetting("dataplane", Restart, func(c *Config) *string { return &c.Dataplane }, ParseDataplane, itself,
		"bpf or iptables: what enforces policy; auto: bpf, or iptables where the kernel is too old; record: enforce nothing and log what would be enforced"), dataplanes),
	either("workload-source-spoofing", Restart, func(c *Config) *bool { return &c.SourceSpoofing },
		"Disabled: pods send from their own addresses only; Any: also from the prefixes that they list in an annotation",
		"Disabled", "Any").
		from(felixWord("workloadSourceSpoofing", map[string]string{"disabled": "Disabled", "any": "Any"}, "Disabled or Any"), "workloadSourceSpoofing"),
	newSetting("mark-mask", Restart, func(c *Config) *uint32 { return &c.MarkMask }, ParseMarkMask, printMarkMask,
		"packet mark bits to use, at least three; not kube-proxy's 0x4000 and 0x8000").like(markPattern),
	oneOf("iptables-backend", Restart, func(c *Config) *string { return &c.IptablesBackend },
		"auto, legacy or nft: which iptables the iptables dataplane writes with", "auto", "legacy", "nft"),
	newSetting("iptables-mark-mask", Restart, func(c *Config) *uint32 { return &c.IptablesMarkMask }, ParseIptablesMarkMask, printMarkMask,
		"packet and connection mark bits of the iptables dataplane, at least 12 next to each other").like(markPattern),
	newSetting("masquerade-mark", Restart, func(c *Config) *uint32 { return &c.MasqueradeMark }, parseMasqueradeMark, printMarkMask,
		"the mark bit by which kube-proxy marks packets whose source it replaces, for the iptables dataplane; 0: none").like(markPattern),
	either("existing-connections", Reopen, func(c *Config) *bool { return &c.KeepExisting },
		"revoke or keep live flows that a new policy denies", "revoke", "keep"),
	either("default-endpoint-to-host-action", Reopen, func(c *Config) *bool { return &c.HostDrop },
		"Accept or Drop traffic from pods to their node that egress policy allows", "Accept", "Drop").
		from(felixWord("defaultEndpointToHostAction", map[string]string{"drop": "Drop", "accept": "Accept", "return": "Accept"},
			"Drop, Return or Accept"), "defaultEndpointToHostAction"),
	toggle("allow-encap-from-workloads", Reopen, func(c *Config) *bool { return &c.AllowEncap },
		"judge tunnels that pods make (IP-in-IP, GRE, UDP to a tunnel's port) as other traffic instead of dropping them").
		from(felixEncap, fieldVXLANAllowed, fieldIPIPAllowed),
	number("vxlan-port", Reopen, func(c *Config) *uint16 { return &c.VXLANPort }, parsePort, "UDP port of VXLAN; 0: none").from(felixAsIs("vxlanPort"), "vxlanPort"),
	newSettingOf("tunnel-ports", Reopen, func(c *Config) *[]uint16 { return &c.TunnelPorts }, parsePorts, printPorts,
		slices.Equal[[]uint16],
		"additional UDP ports of tunnels, separated by commas, or off").like(portsPattern),
	either("mid-flow", Reopen, func(c *Config) *bool { return &c.StrictMidFlow },
		"judge: policy judges TCP packets of unknown connections; strict: they are dropped", "judge", "strict"),
	toggle("no-shortcut", Reopen, func(c *Config) *bool { return &c.NoShortcut },
		"send traffic between pods of this node through the host's stack"),
	toggle("interpret", Reopen, func(c *Config) *bool { return &c.Interpret },
		"walk rules in the kernel instead of using decision tables (slow; for comparison)"),
}

// leastVerifyEvery is how often the agent looks whether a verification is due.
const leastVerifyEvery = 10 * time.Second

// limitSettings bound flows and maps, and how often the agent compares the kernel's state.
var limitSettings = []*Setting{
	duration("resync-every", Live, func(c *Config) *time.Duration { return &c.ResyncEvery }, time.Millisecond,
		"how often the state in the kernel is compared with the desired state, and repaired"),
	zeroOr("verify-every", Live, func(c *Config) *time.Duration { return &c.VerifyEvery }, leastVerifyEvery,
		"how often margay verify is run by the agent itself, for the metrics and the log, at least 10s; 0s: never"),
	repeatable(newSettingOf("map-size", Restart, func(c *Config) *map[string]uint32 { return &c.MapSizes }, parseMapSizes, printMapSizes,
		maps.Equal[map[string]uint32],
		"NAME=ENTRIES, the size of a map, as in ct4=1000000 (repeatable, or separated by commas)")).like(sizesPattern),
	duration("mid-flow-grace", Reopen, func(c *Config) *time.Duration { return &c.MidFlowGrace }, 0,
		"after a loss of all flows, how long policy alone may decide that a TCP packet is an answer; 0s: never"),
	number("flow-quota", Reopen, func(c *Config) *uint32 { return &c.FlowQuota }, parseCount,
		"most open flows of one pod that are kept for their whole life; 0: no limit"),
	timeout("timeout-tcp-syn", func(t *dataplane.Timeouts) *time.Duration { return &t.TCPSyn }, "TCP handshake", "tcpSynSent"),
	timeout("timeout-tcp-established", func(t *dataplane.Timeouts) *time.Duration { return &t.TCPEstablished }, "established TCP", "tcpEstablished"),
	timeout("timeout-tcp-fin", func(t *dataplane.Timeouts) *time.Duration { return &t.TCPFin }, "closing or reset TCP", "tcpFinsSeen"),
	timeout("timeout-udp", func(t *dataplane.Timeouts) *time.Duration { return &t.UDP }, "UDP", "udpTimeout"),
	timeout("timeout-icmp", func(t *dataplane.Timeouts) *time.Duration { return &t.ICMP }, "ICMP", "icmpTimeout"),
	timeout("timeout-other", func(t *dataplane.Timeouts) *time.Duration { return &t.Other }, "other protocols", "genericTimeout"),
}

// reportingSettings are what the agent reports, and where.
var reportingSettings = []*Setting{
	oneOf("log-level", Live, func(c *Config) *string { return &c.LogLevel },
		"debug, info, warn or error", "debug", "info", "warn", "error").
		from(felixWord("logSeverityScreen", map[string]string{"trace": "debug", "debug": "debug", "info": "info",
			"warning": "warn", "error": "error", "fatal": "error"}, "Trace, Debug, Info, Warning, Error or Fatal"), "logSeverityScreen"),
	address("health-address", func(c *Config) *string { return &c.HealthAddress },
		"where /livez and /readyz are served, HOST:PORT or off"),
	address("metrics-address", func(c *Config) *string { return &c.MetricsAddress },
		"where /metrics is served, HOST:PORT or off"),
	toggle("endpoint-drop-metrics", Restart, func(c *Config) *bool { return &c.EndpointDropMetrics },
		"count dropped packets by endpoint and direction in the metrics: two series for each endpoint that drops any"),
	toggle("pprof", Restart, func(c *Config) *bool { return &c.PProf },
		"serve profiles of the agent at the health address, /debug/pprof"),
	newSetting("endpoint-status-dir", Restart, func(c *Config) *string { return &c.EndpointStatusDir }, parseStatusDir, printOff,
		"directory in which each pod whose policy is enforced has a file, for the CNI plugin, or off").like(statusDirPattern).
		from(felixStatusDir, "endpointStatusPathPrefix"),
	toggle("events", Restart, func(c *Config) *bool { return &c.Events },
		"report rejected objects to their owners in Kubernetes Events (with datastore kubernetes)"),
	number("event-rate", Reopen, func(c *Config) *uint32 { return &c.EventRate }, parseCount,
		"verdict events per second and CPU; 0: none"),
}

// timeout is the timeout of flows in one state; key is that state's in bpfConntrackTimeouts.
func timeout(name string, at func(*dataplane.Timeouts) *time.Duration, of, key string) *Setting {
	return duration(name, Reopen, func(c *Config) *time.Duration { return at(&c.Timeouts) }, time.Second,
		"flow timeout: "+of).from(felixTimeout(key), fieldTimeouts)
}

// address takes HOST:PORT, or off.
func address(name string, at func(*Config) *string, usage string) *Setting {
	return newSetting(name, Restart, at, parseAddress, printOff, usage).like(addressPattern)
}

// named is one that takes one of a few words.
func named(s *Setting, words []string) *Setting {
	s.Words = words
	return s
}

func notInFile(s *Setting) *Setting {
	s.NotInFile = true
	return s
}

func repeatable(s *Setting) *Setting {
	s.Repeatable = true
	return s
}
