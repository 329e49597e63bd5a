package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/handover"
	xtables "github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// successor is a dataplane that comes after the other one. What that has left stays in force until the first Apply that has
// enforced everything: until then a packet has to pass both. Then it is removed.
type successor struct {
	dataplane.Dataplane
	remove func(context.Context) error // nil: it is done
	let    func() error                // lets go of what is not removed; may be nil
}

// Close implements dataplane.Dataplane.
func (s *successor) Close() error {
	err := s.Dataplane.Close()
	if s.let != nil {
		err = errors.Join(err, s.let())
	}
	return err
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

// afterIPTables has a BPF dataplane know the flows of the iptables dataplane, and then remove what that has left. Without iptables it
// could not do so, and what was left would drop what policy has come to allow; then the error says so.
func afterIPTables(ctx context.Context, d *bpfplane.BPF, c config.Config, log *slog.Logger) (remove func(context.Context) error, err error) {
	found := false
	if c.Instance == "" { // the iptables dataplane has no instances
		if found, err = iptablesLeft(); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, bpfplane.JudgeAlone(d)
	}
	tools, err := backends(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s; use the image with iptables", oneLine(err))
	}
	enforced, err := readEnforced(ctx, tools)
	if err != nil {
		return nil, err
	}
	if enforced.InForce() {
		err = bpfplane.JudgeBeside(d, carryToBPF(enforced, c, log))
	} else { // an agent has ended while it wrote chains, or somebody has flushed them
		err = bpfplane.JudgeAlone(d)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		begun := time.Now()
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

// afterBPF has an iptables dataplane know the flows of the BPF dataplane, and then take off the programs that it has left, and
// remove their maps. Maps of another layout cannot be read: then flows are not carried over.
func afterBPF(c config.Config, kernel *iptables.Kernel, flows handover.Kernel, log *slog.Logger) (*leaving, error) {
	dir := bpfmaps.InstanceDir(c.BPFFS, c.Instance)
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	unlock, err := lockInstance(dir)
	if err != nil {
		return nil, err
	}
	l := &leaving{dir: dir, config: c, log: log, unlock: unlock}
	if l.from, err = bpfplane.OpenPredecessor(c.Config); err != nil {
		log.Warn("flows of the BPF dataplane cannot be carried over: each is judged as if it began", "why", err)
	}
	if err := l.stepBack(kernel.Tools); err != nil {
		return nil, errors.Join(err, l.close())
	}
	kernel.Learn = func(mark chains.Value, keep bool) error { return l.learn(flows, mark, keep) }
	// Chains that are written have the kernel track flows: those that it knows by then have the right direction.
	if err := l.learn(flows, chains.Value{}, false); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// leaving is a BPF dataplane that an iptables dataplane comes after.
type leaving struct {
	dir    string
	config config.Config
	log    *slog.Logger
	from   *bpfplane.Predecessor // nil: it cannot be read
	unlock func() error          // nil: all is removed
}

// stepBack has the programs deny again, unless chains do: an agent may have ended in a switch.
func (l *leaving) stepBack(tools *xtables.Tools) error {
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

// remove takes it off, once the iptables dataplane judges all packets.
func (l *leaving) remove(context.Context) error {
	begun := time.Now()
	if l.from != nil {
		if err := errors.Join(l.from.StepAside(), l.from.Close()); err != nil {
			return err
		}
		l.from = nil
	}
	var done cleanup
	if err := done.pinned(l.dir); err != nil {
		return err
	}
	l.log.Info("removed what the BPF dataplane had left", "things", len(done.removed), "took", time.Since(begun))
	return l.close()
}

// close lets go of it. All that is not removed stays in force.
func (l *leaving) close() error {
	if l == nil || l.unlock == nil {
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
