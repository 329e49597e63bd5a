package dataplane

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// OpenBPF opens the BPF dataplane on a host: the pinned maps of this instance, made if they are missing, and programs
// loaded anew over them. What an earlier agent left enforced stays so. The host belongs to the dataplane from here on,
// unless an error is returned.
func OpenBPF(c Config, host Host, log *slog.Logger) (*BPF, error) {
	m, err := bpfmaps.Open(bpfmaps.Options{BPFFS: c.BPFFS, Instance: c.Instance, MaxEntries: c.MapEntries})
	if err != nil {
		return nil, err
	}
	d := &BPF{
		config: c, log: log, host: host, maps: m, observer: unobserved{},
	}
	for _, kept := range m.Kept {
		log.Warn("map size", "kept", kept)
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open bpf dataplane: %w", err), d.closeMaps())
	}
	return d, nil
}

func (d *BPF) open() error {
	var err error
	if d.programs, err = d.maps.LoadPrograms(d.config.bpf()); err != nil {
		return err
	}
	if err := d.sweeps.use(d.maps, d.programs); err != nil {
		return err
	}
	if err = d.expectAnswers(); err != nil {
		return err
	}
	if d.older, err = bpfmaps.OtherLayouts(d.config.BPFFS, d.config.Instance); err != nil {
		return err
	}
	if err := d.host.Use(d.programs, d.maps.LinkDir(), d.olderLinks()); err != nil {
		return err
	}
	if d.gens, err = d.maps.OpenGenerations(); err != nil {
		return err
	}
	if d.endpoints, err = d.maps.OpenEndpoints(); err != nil {
		return err
	}
	return d.takeOver()
}

// takeOver makes what is enforced the state to go on from.
func (d *BPF) takeOver() error {
	d.waiting, d.plan, d.step = nil, compile.Plan{}, len(order)
	d.tables, d.bound = map[compile.TableID]published{}, map[model.EndpointID]*endpoint{}
	d.owners, d.dirty = map[netip.Prefix]compile.AddrChange{}, map[model.EndpointID]bool{}
	d.adopted, d.retired, d.names = map[string]model.EndpointID{}, map[uint32]bool{}, newNames(d.maps, d.log)
	d.out = newExclusions()
	d.leaving, d.unused, d.ready, d.guarded = map[uint32]bool{}, nil, false, false
	d.prepared, d.peerless = map[uint32]bool{}, map[model.EndpointID]bool{}
	names := map[uint32]string{}
	d.interfaces = d.host.Interfaces()
	for name, ifindex := range d.interfaces {
		names[ifindex] = name
	}
	snapshot, err := d.adopt(names)
	if err != nil {
		return fmt.Errorf("read back what is enforced: %w", err)
	}
	var inUse []uint32
	for _, t := range snapshot.Tables {
		inUse = append(inUse, uint32(t.ID))
	}
	slots, err := d.maps.OpenSlots(inUse)
	if err != nil {
		return err
	}
	d.slots = slots
	d.compiler = compile.New(compile.Options{
		Limits:  compile.Limits{Interpret: d.config.Interpret, Wide: d.config.Wide},
		Budget:  compile.DefaultBudget(int(d.maps.MaxEntries(bpf.MargayMapClassSets)), int(d.maps.MaxEntries(bpf.MargayMapIp4Net))),
		Confirm: true,
	}, snapshot)
	if len(snapshot.Endpoints) > 0 {
		d.log.Info("took over what is enforced already", "endpoints", len(snapshot.Endpoints),
			"policies", len(snapshot.Tables), "addresses", len(snapshot.Addrs))
	}
	return nil
}

// Reopen implements Dataplane.
func (d *BPF) Reopen() error {
	// Packets may be at work with classes and slots that have just gone; afterwards nobody remembers which.
	if d.quiet != nil {
		<-d.quiet
		d.quiet = nil
	}
	if err := errors.Join(d.reconfigure(), d.slots.Close(), d.endpoints.Reload()); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	if err := d.takeOver(); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	return nil
}

// closeMaps lets go of what open has opened so far.
func (d *BPF) closeMaps() error {
	errs := []error{d.sweeps.close()}
	if d.slots != nil {
		errs = append(errs, d.slots.Close())
	}
	if d.endpoints != nil {
		errs = append(errs, d.endpoints.Close())
	}
	if d.programs != nil {
		errs = append(errs, d.programs.Close())
	}
	return errors.Join(append(errs, d.maps.Close())...)
}

// Wake implements Dataplane.
func (d *BPF) Wake() <-chan struct{} { return d.host.Wake() }

// bpf is the configuration as the programs have it.
func (c Config) bpf() bpf.Config {
	b := bpf.Config{
		MarkSeen: c.MarkSeen, MarkJudge: c.MarkJudge, MarkOwn: c.MarkOwn,
		HostDrop: bit(c.HostDrop), Shortcut: bit(c.Shortcut), Strict: bit(c.StrictTCP), Keep: bit(c.Keep),
		EventRate: c.EventRate, OpenQuota: c.FlowQuota, Hz: hz(), NoTunnels: bit(c.DropTunnels),
		TimeoutSyn: seconds(c.Timeouts.TCPSyn), TimeoutTcp: seconds(c.Timeouts.TCPEstablished),
		TimeoutFin: seconds(c.Timeouts.TCPFin), TimeoutUdp: seconds(c.Timeouts.UDP),
		TimeoutIcmp: seconds(c.Timeouts.ICMP), TimeoutOther: seconds(c.Timeouts.Other),
		PrefixLen: uint32(min(len(c.Prefix), len(bpf.Config{}.Prefix))),
	}
	copy(b.Prefix[:], c.Prefix)
	copy(b.TunnelPorts[:], c.TunnelPorts)
	return b
}

// hz is the kernel's tick rate: the resolution of its coarse clock is one tick.
func hz() uint32 {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil || res.Nano() <= 0 {
		return 250 // what nearly all distributions build with; timeouts are off by the factor if it is another
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
