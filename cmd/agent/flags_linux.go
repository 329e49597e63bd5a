package main

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/dataplane"
)

// dataplaneFlags are the flags of what is enforced and how.
type dataplaneFlags struct {
	encap      bool
	config     dataplane.Config
	mode       string
	markMask   string
	existing   string
	hostTo     string
	tcp        string
	log        string
	mapSizes   []string
	noShortcut bool
}

func (f *dataplaneFlags) register(fs *pflag.FlagSet) {
	f.config = dataplane.Defaults()
	fs.StringVar(&f.mode, "dataplane", "auto", "auto or bpf: what enforces policy")
	fs.StringVar(&f.config.Prefix, "interface-prefix", f.config.Prefix, "what names of workload interfaces begin with")
	fs.StringVar(&f.markMask, "mark-mask", defaultMarkMask, "packet mark bits to use, at least three; not kube-proxy's 0x4000 and 0x8000")
	fs.StringVar(&f.existing, "existing-connections", "revoke", "revoke or keep: what becomes of live flows that a new policy denies")
	fs.StringVar(&f.hostTo, "default-endpoint-to-host-action", "Accept", "Accept or Drop: what becomes of pod-to-node traffic that egress policy allows")
	fs.BoolVar(&f.encap, "allow-encap-from-workloads", false, "judge IP-in-IP and VXLAN from pods as other traffic instead of dropping them")
	fs.Uint16Var(&f.config.VXLANPort, "vxlan-port", f.config.VXLANPort, "UDP port of VXLAN")
	fs.StringVar(&f.tcp, "mid-flow", "judge", "judge or strict: TCP packets of unknown connections are judged by policy, or dropped")
	fs.BoolVar(&f.noShortcut, "no-shortcut", false, "send traffic between pods of this node through the host's stack")
	fs.Uint32Var(&f.config.EventRate, "event-rate", f.config.EventRate, "verdict events per second and CPU")
	fs.Uint32Var(&f.config.FlowQuota, "flow-quota", f.config.FlowQuota, "most open flows of one pod that are kept for their whole life; 0: no limit")
	fs.StringArrayVar(&f.mapSizes, "map-size", nil, "NAME=ENTRIES for a map of its own size, as in ct4_open=1000000 (repeatable)")
	fs.BoolVar(&f.config.Interpret, "interpret", false, "walk rules in the kernel instead of using decision tables (slow; for comparison)")
	fs.StringVar(&f.log, "log-level", "info", "debug, info, warn or error")
	t := &f.config.Timeouts
	fs.DurationVar(&t.TCPSyn, "timeout-tcp-syn", t.TCPSyn, "flow timeout: TCP handshake")
	fs.DurationVar(&t.TCPEstablished, "timeout-tcp-established", t.TCPEstablished, "flow timeout: established TCP")
	fs.DurationVar(&t.TCPFin, "timeout-tcp-fin", t.TCPFin, "flow timeout: closing or reset TCP")
	fs.DurationVar(&t.UDP, "timeout-udp", t.UDP, "flow timeout: UDP")
	fs.DurationVar(&t.ICMP, "timeout-icmp", t.ICMP, "flow timeout: ICMP")
	fs.DurationVar(&t.Other, "timeout-other", t.Other, "flow timeout: other protocols")
}

// parse turns the flags into a configuration. Its errors name the flag.
func (f *dataplaneFlags) parse() (dataplane.Config, slog.Level, error) {
	c := f.config
	c.Shortcut = !f.noShortcut
	if f.encap {
		c.VXLANPort = 0
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		return c, level, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.log)
	}
	if f.mode != "auto" && f.mode != "bpf" {
		return c, level, fmt.Errorf("--dataplane %q: want auto or bpf", f.mode)
	}
	var err error
	if c.Keep, err = choice("existing-connections", f.existing, "keep", "revoke"); err != nil {
		return c, level, err
	}
	if c.HostDrop, err = choice("default-endpoint-to-host-action", f.hostTo, "Drop", "Accept"); err != nil {
		return c, level, err
	}
	if c.StrictTCP, err = choice("mid-flow", f.tcp, "strict", "judge"); err != nil {
		return c, level, err
	}
	if c.Prefix == "" || len(c.Prefix) > 8 {
		return c, level, fmt.Errorf("--interface-prefix %q: want 1 to 8 characters", c.Prefix)
	}
	if _, err := marks(f.markMask, &c); err != nil {
		return c, level, err
	}
	c.MapEntries = map[string]uint32{}
	for _, s := range f.mapSizes {
		name, size, _ := strings.Cut(s, "=")
		n, err := strconv.ParseUint(size, 10, 32)
		if err != nil || n == 0 {
			return c, level, fmt.Errorf("--map-size %q: want NAME=ENTRIES", s)
		}
		c.MapEntries[name] = uint32(n)
	}
	return c, level, nil
}

// choice is whether a flag has its first value rather than its second.
func choice(flag, value, yes, no string) (bool, error) {
	if !strings.EqualFold(value, yes) && !strings.EqualFold(value, no) {
		return false, fmt.Errorf("--%s %q: want %s or %s", flag, value, no, yes)
	}
	return strings.EqualFold(value, yes), nil
}
