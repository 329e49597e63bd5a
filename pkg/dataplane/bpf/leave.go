package bpf

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
)

// Predecessor is what an agent with a BPF dataplane has left in force, for another dataplane that comes after it. The directory
// of its maps must be locked while it is open.
type Predecessor struct {
	maps      *bpfmaps.Maps
	programs  *bpfmaps.Programs
	links     *attach.Links
	endpoints *bpfmaps.Endpoints
	owners    map[netip.Addr]uint32 // what Owners has returned
}

// OpenPredecessor opens it, and loads programs of this version for EndShortcut. The programs in force stay as they are.
func OpenPredecessor(c dataplane.Config) (*Predecessor, error) {
	maps, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: c.BPFFS, Instance: c.Instance})
	if err != nil {
		return nil, err
	}
	p := &Predecessor{maps: maps}
	config := programConfig(c)
	config.EndShortcut = 1
	if p.programs, err = maps.LoadPrograms(config); err == nil {
		p.endpoints, err = maps.OpenEndpoints()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// EndShortcut sends all packets through the node's network stack, where the other dataplane sees them. It puts programs of this version
// in the place of those in force, which judge as those did, by the same maps. With them no flow begins that takes the shortcut. So
// when EndShortcut calls learn, Flows has every flow that does, and the kernel's table can get them before it sees their packets.
// Then they take the shortcut no more. If learn fails, they go on.
func (p *Predecessor) EndShortcut(learn func() error) error {
	if err := p.replacePrograms(); err != nil {
		return err
	}
	if err := p.maps.AwaitPackets(); err != nil {
		return err
	}
	if err := learn(); err != nil {
		return err
	}
	for _, e := range p.endpoints.List() {
		e.PeerIfindex = 0
		if err := p.endpoints.Set(e); err != nil {
			return fmt.Errorf("end the shortcut: %w", err)
		}
	}
	return nil
}

// replacePrograms puts programs of this version in the place of those in force.
func (p *Predecessor) replacePrograms() error {
	var programs attach.Programs
	var errs [4]error
	programs.FromPod, errs[0] = p.programs.Get(bpf.MargayProgFromPod)
	programs.ToPod, errs[1] = p.programs.Get(bpf.MargayProgToPod)
	programs.Guard, errs[2] = p.programs.Get(bpf.MargayProgGuard)
	programs.Judge, errs[3] = p.programs.Get(bpf.MargayProgJudge)
	err := errors.Join(errs[:]...)
	if err != nil {
		return err
	}
	if p.links, err = attach.NewLinks(p.maps.LinkDir(), nil, programs); err != nil {
		return err
	}
	attached, err := p.links.List()
	if err != nil {
		return err
	}
	for _, a := range attached {
		if !a.Ingress.Attached && !a.Egress.Attached {
			continue // the interface has gone, and one with its number is another pod's
		}
		if _, err := p.links.Ensure(a.Ifindex); err != nil && !errors.Is(err, attach.ErrGone) {
			return err
		}
	}
	// An agent may have ended before it had programs on all interfaces, and so none at the hooks: they would drop packets of others.
	hooked, err := attach.Hooked(p.maps.LinkDir())
	if err != nil {
		return err
	}
	if hooked {
		_, judgeErr := p.links.EnsureHooks()
		_, guardErr := p.links.EnsureEarly() // the agent before may have suspended it, and it is not there any more
		return errors.Join(judgeErr, guardErr)
	}
	return nil
}

// Flows are its flows. Once Owners has returned, those are left out that another endpoint had with an address of an endpoint in force: the
// programs judge their packets as if there were no such flow.
func (p *Predecessor) Flows() iter.Seq2[bpfmaps.Flow, error] {
	return func(yield func(bpfmaps.Flow, error) bool) {
		for f, err := range p.maps.Flows.All() {
			if err == nil && p.isOfFormer(&f) {
				continue
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

// isOfFormer reports whether one end of a flow is a former owner of the address, as check_side in policy.h has it.
func (p *Predecessor) isOfFormer(f *bpfmaps.Flow) bool {
	opener, responder := f.Ends()
	stamped := f.Entry.State&uint8(bpf.MargayCtStateCT_REVOKED) == 0 // otherwise there is a clock in the place of stamps
	for _, end := range [...]struct {
		addr          netip.Addr
		judged, stamp uint32
	}{{opener.Addr(), f.Entry.OpenerIf, f.Entry.Egress}, {responder.Addr(), f.Entry.ResponderIf, f.Entry.Ingress}} {
		owner, known := p.owners[end.addr]
		if !known || end.judged == 0 {
			continue
		}
		entry, _ := p.endpoints.Get(owner)
		if end.judged != owner || stamped && end.stamp != 0 && end.stamp < entry.Id {
			return true
		}
	}
	return false
}

// Sources returns the further sources of its endpoints, by interface.
func (p *Predecessor) Sources() (map[uint32][]netip.Prefix, error) { return pinnedSources(p.maps) }

// Owners returns the numbers of the interfaces that have the addresses of endpoints in force; 0: that interface has gone, and a pod which
// has the address now is another one. Call it before EndShortcut: a number can be that of a new interface, which has no program yet. Beside
// another dataplane an interface may also have no program because an agent has ended in a switch, and the other one knows what has gone.
// nil: agents have ended before they had programmed all endpoints, so it is not known which addresses had owners.
func (p *Predecessor) Owners() (map[netip.Addr]uint32, error) {
	if guarded, err := attach.Hooked(p.maps.LinkDir()); !guarded || err != nil {
		return nil, err
	}
	pinned, err := ReadPinned(p.maps)
	if err != nil {
		return nil, err
	}
	attached, err := attach.ListPinned(p.maps.LinkDir())
	if err != nil {
		return nil, err
	}
	there := map[uint32]bool{}
	for _, a := range attached {
		there[a.Ifindex] = a.Ingress.Attached || a.Egress.Attached
	}
	owners := map[netip.Addr]uint32{}
	p.owners = owners
	for _, e := range pinned.Endpoints() {
		for _, a := range e.Addrs {
			entry, ok := p.endpoints.Get(e.Ifindex)
			if !ok || !hasAddr(entry, a) {
				continue
			}
			if owners[a] = 0; there[e.Ifindex] || entry.Flags&bpf.EPBeside != 0 {
				owners[a] = e.Ifindex
			}
		}
	}
	return owners, nil
}

// StepAside lets everything pass that policy seems to deny: another dataplane denies it from here on.
func (p *Predecessor) StepAside() error { return setBeside(p.endpoints, bpf.EPBeside) }

// StepAsideForGood lets everything pass that policy seems to deny, before the programs of an instance are detached: else those at the hooks
// would drop packets to interfaces whose programs are detached already. Maps of another layout are left as they are: the programs of
// layouts before this release do not ask what is attached.
func StepAsideForGood(bpffs, instance string) error {
	maps, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: bpffs, Instance: instance})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	endpoints, err := maps.OpenEndpoints()
	if err != nil {
		return errors.Join(err, maps.Close())
	}
	return errors.Join(setBeside(endpoints, bpf.EPBeside), endpoints.Close(), maps.Close())
}

// StepBack is the reverse of StepAside: an agent may have ended after that, and no other dataplane judges. Fragments may come whose first one
// has passed before.
func (p *Predecessor) StepBack() error { return setBeside(p.endpoints, bpf.EPBesideBefore) }

// Close lets go of everything. Programs stay in force.
func (p *Predecessor) Close() error {
	var errs []error
	if p.endpoints != nil {
		errs = append(errs, p.endpoints.Close())
	}
	if p.links != nil {
		errs = append(errs, p.links.Close())
	}
	if p.programs != nil {
		errs = append(errs, p.programs.Close())
	}
	return errors.Join(append(errs, p.maps.Close())...)
}
