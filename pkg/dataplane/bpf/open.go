package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// OpenBPF opens the BPF dataplane on a host: the pinned maps of this instance, made if they are missing, and programs
// loaded again over them. Policy that an earlier agent left enforced stays so. The host belongs to the dataplane from here on,
// unless an error is returned.
func OpenBPF(c dataplane.Config, host Host, log *slog.Logger) (*BPF, error) {
	m, err := bpfmaps.Open(bpfmaps.Options{BPFFS: c.BPFFS, Instance: c.Instance, MaxEntries: c.MapSizes})
	if err != nil {
		return nil, err
	}
	d := &BPF{config: c, kernel: &kernel{log: log, host: host, maps: m, heirs: newHeirs(host.Tracks), early: newEarly(time.Now)}, observer: unobserved{}}
	d.pins = pins{kernel: d.kernel, retry: plans.NewBackoff(time.Now)}
	for _, kept := range m.Kept {
		log.Warn("map size", "kept", kept)
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open bpf dataplane: %w", err), d.release())
	}
	return d, nil
}

func (d *BPF) open() error {
	k := d.kernel
	var err error
	if d.programs, err = k.maps.LoadPrograms(programConfig(d.config)); err != nil {
		return err
	}
	if err := d.sweeps.open(k.maps, d.programs, k.log); err != nil {
		return err
	}
	if err = k.expectAnswers(d.config.MidFlowGrace); err != nil {
		return err
	}
	if k.older, err = bpfmaps.OtherLayouts(d.config.BPFFS, d.config.Instance); err != nil {
		return err
	}
	if err := k.host.Use(d.programs, k.maps.LinkDir(), k.olderLinks()); err != nil {
		return err
	}
	if err := k.host.ResumeEarly(); err != nil { // judge drops the same packets, later
		k.log.Warn("new pods are not closed before conntrack until policy is enforced", "err", err)
	}
	if k.gens, err = k.maps.OpenGenerations(); err != nil {
		return err
	}
	if k.endpoints, err = k.maps.OpenEndpoints(); err != nil {
		return err
	}
	d.state, err = newState(d.config, k)
	return err
}

// programConfig is the configuration as the programs have it.
func programConfig(c dataplane.Config) bpf.Config {
	b := bpf.Config{
		HostDrop: bit(c.HostDrop), NoShortcut: bit(c.NoShortcut), StrictMidFlow: bit(c.StrictMidFlow),
		KeepExisting: bit(c.KeepExisting), AllowEncap: bit(c.AllowEncap),
		EventRate: c.EventRate, FlowQuota: c.FlowQuota, Hz: hz(),
		TimeoutTcpSyn: seconds(c.Timeouts.TCPSyn), TimeoutTcpEstablished: seconds(c.Timeouts.TCPEstablished),
		TimeoutTcpFin: seconds(c.Timeouts.TCPFin), TimeoutUdp: seconds(c.Timeouts.UDP),
		TimeoutIcmp: seconds(c.Timeouts.ICMP), TimeoutOther: seconds(c.Timeouts.Other),
		InterfacePrefixLen: uint32(min(len(c.InterfacePrefix), len(bpf.Config{}.InterfacePrefix))),
	}
	copy(b.InterfacePrefix[:], c.InterfacePrefix)
	copy(b.TunnelPorts[:], c.AllTunnelPorts())
	b.MarkSeen, b.MarkJudge, b.MarkOwn = c.Marks()
	return b
}

// hz is the kernel's tick rate: the resolution of its coarse clock is one tick.
func hz() uint32 {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil || res.Nano() <= 0 {
		return 250 // the value of nearly all distributions; with another one timeouts are off by the factor
	}
	return uint32(math.Round(1e9 / float64(res.Nano())))
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Duration) uint32 {
	return uint32(max(1, math.Ceil(t.Seconds())))
}
