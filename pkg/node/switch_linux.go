package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/handover"
	xtables "github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// successor is a dataplane that starts after the other one. The policy that the other one left stays in force until the first Apply
// that has enforced everything: until then a packet has to pass both. Then it is removed.
type successor struct {
	dataplane.Dataplane
	remove func(context.Context) error // nil: it is done
}

// Apply implements dataplane.Dataplane.
func (s *successor) Apply(ctx context.Context, ch model.Changes) error {
	err := s.Dataplane.Apply(ctx, ch)
	if _, held := errors.AsType[*dataplane.HeldBack](err); s.remove == nil || err != nil && !held {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, iptablesPatience)
	defer cancel()
	if removeErr := s.remove(ctx); removeErr != nil {
		return errors.Join(fmt.Errorf("remove what the other dataplane has left in force: %w", removeErr), err)
	}
	s.remove = nil
	return err
}

// afterIPTables makes a BPF dataplane add the flows of the iptables dataplane, and then remove its chains and sets. If there are no
// iptables commands they could not be removed, and would drop traffic that a later policy allows; so that is an error. Another is an
// agent that runs and enforces with iptables here: it would repair its chains as often as they are removed.
func afterIPTables(ctx context.Context, d *bpfplane.BPF, c config.Config, log *slog.Logger) (remove func(context.Context) error, err error) {
	found := false
	if c.Instance == "" { // the iptables dataplane has no instances
		if running, err := xtables.Reserved(); err == nil && running { // a lock that this process may not read is no reason not to start
			return nil, fmt.Errorf("%w: stop it first", xtables.ErrNotSole)
		}
		if found, err = IPTablesLeft(); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, bpfplane.JudgeAlone(d)
	}
	tools, err := IPTablesTools(ctx)
	if err != nil {
		hint := "; use the image with iptables"
		if errors.Is(err, errLegacyLeft) {
			hint = "; make it work"
		}
		return nil, refused{oneLine(err) + hint, err}
	}
	enforced, err := readEnforced(ctx, tools)
	if err != nil {
		return nil, err
	}
	if enforced.InForce() {
		err = bpfplane.JudgeBeside(d, carryToBPF(enforced, c, log))
	} else { // an agent stopped before its chains were complete, or they were flushed
		err = bpfplane.JudgeAlone(d)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		begun := time.Now()
		interfaces := map[string]bool{}
		for _, name := range enforced.Locals {
			interfaces[name] = true
		}
		if err := dataplane.Inside(c.InterfacePrefix, interfaces, attach.Present); err != nil {
			return err
		}
		if err := bpfplane.JudgeAlone(d); err != nil {
			return err
		}
		removed, err := removeIPTables(ctx)
		if err == nil {
			log.Info("removed what the iptables dataplane had left", "chains", removed.Chains, "sets", removed.Sets, "took", time.Since(begun))
		}
		return err
	}, nil
}

// afterBPF makes an iptables dataplane add the flows of the BPF dataplane, and then detach its programs and remove their maps. Maps of
// another layout cannot be read: then flows are not carried over. The programs that are not detached stay in force at the release.
func afterBPF(c config.Config, h *held, kernel *iptables.Kernel, flows handover.Kernel, log *slog.Logger) (remove func(context.Context) error,
	err error) {
	dir := bpfmaps.InstanceDir(c.BPFFS, c.Instance)
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	unlock, err := lockInstance(dir)
	if err != nil {
		return nil, err
	}
	l := &replacedBPF{dir: dir, config: c, log: log, unlock: unlock}
	h.add(l.close)
	if l.from, err = bpfplane.OpenPredecessor(c.Config); err != nil {
		l.cannotCarry(err)
		if l.owners, err = routedOwners(c); err != nil {
			return nil, err
		}
	} else if err := errors.Join(l.readOwners(), l.endShortcut(flows)); err != nil {
		return nil, err
	}
	if err := l.stepBack(kernel.Tools); err != nil {
		return nil, err
	}
	kernel.Learn = func(as iptables.Learned) error { return l.learn(flows, as) }
	kernel.Former = func() map[netip.Addr]string { return l.owners }
	// Once chains are written, the kernel tracks flows. Those that it has by then get the right direction.
	if err := l.learn(flows, iptables.Learned{}); err != nil {
		return nil, err
	}
	return l.remove, nil
}

// replacedBPF is a BPF dataplane that an iptables dataplane replaces.
type replacedBPF struct {
	dir    string
	config config.Config
	log    *slog.Logger
	from   *bpfplane.Predecessor // nil: it cannot be read
	owners map[netip.Addr]string // the interfaces of its endpoints, by address; nil: they are not known, or it is removed
	unlock func() error          // nil: everything is removed
}

// endShortcut ends the shortcut of what is left. The kernel knows the flows before it sees their packets: it could take these for
// packets of a former connection with the same ends, and translate or reject them.
func (l *replacedBPF) endShortcut(flows handover.Kernel) error {
	var notLearned error
	err := l.from.EndShortcut(func() error {
		notLearned = l.learn(flows, iptables.Learned{})
		return notLearned
	})
	if err != nil && notLearned == nil {
		l.cannotCarry(errors.Join(err, l.from.Close()))
		l.from = nil
	}
	return notLearned
}

func (l *replacedBPF) cannotCarry(err error) {
	l.log.Warn("flows of the BPF dataplane cannot be carried over: each is judged as if it began", "why", err)
}

// stepBack makes the programs deny again, unless chains do: an agent may have stopped during a switch.
func (l *replacedBPF) stepBack(tools *xtables.Tools) error {
	if l.from == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), iptablesPatience)
	defer cancel()
	enforced, err := readEnforced(ctx, []*xtables.Tools{tools})
	if err != nil || enforced.InForce() {
		return err
	}
	return l.from.StepBack()
}

// remove detaches its programs and removes its maps, once the iptables dataplane judges all packets.
func (l *replacedBPF) remove(context.Context) error {
	begun := time.Now()
	if l.from != nil {
		if err := errors.Join(l.from.StepAside(), l.from.Close()); err != nil {
			return err
		}
		l.from = nil
	} else if err := bpfplane.StepAsideForGood(l.config.BPFFS, l.config.Instance); err != nil {
		l.log.Warn("packets to pods may be lost while programs are detached", "err", err)
	}
	var done cleanup
	if err := done.pinned(l.dir); err != nil {
		return err
	}
	l.owners = nil
	l.log.Info("removed what the BPF dataplane had left", "things", len(done.removed), "took", time.Since(begun))
	return l.close()
}

// close releases it. Programs that are not detached stay in force.
func (l *replacedBPF) close() error {
	if l.unlock == nil {
		return nil
	}
	var errs []error
	if l.from != nil {
		errs = append(errs, l.from.Close())
		l.from = nil
	}
	errs = append(errs, l.unlock())
	l.unlock = nil
	return errors.Join(errs...)
}
