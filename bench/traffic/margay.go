//go:build linux

package traffic

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
)

// agent is a real agent on one node. It is stopped once policy is enforced, so that nothing it does is in the way; what
// it enforces stays.
type agent struct {
	enforcement
	instance string
	log      string
	socket   string
	rss      int // bytes, once policy was enforced
}

// enforcement is how an agent enforces, and which policy.
type enforcement struct {
	shape
	backend  string // of iptables; empty: BPF
	shortcut bool
	early    bool // the program before conntrack stays attached, as in an agent's first ten minutes
}

func margayConfig(name string, rules int, shortcut bool) config {
	return enforcedBy(name, enforcement{shape: shape{rules: rules}, shortcut: shortcut})
}

func enforcedBy(name string, e enforcement) config {
	c := config{
		name: name, share: 1, denies: true, shortcut: e.shortcut,
		setUp: func(ctx context.Context, s *site) error {
			if err := s.enforce(ctx, e); err != nil || e.early || e.backend != "" {
				return err
			}
			return s.unpin("guard-pre_routing-") // it was attached again when the agent ended
		},
		verify:   func(s *site) error { return s.checkFlows() },
		tearDown: func(s *site) error { return s.forget() },
	}
	if e.backend != "" {
		c.verify, c.tearDown = func(s *site) error { return s.checkMarks() }, nil
	}
	return c
}

// withoutHooks is the same with all netfilter programs taken away: not a way to run, but the difference tells what they cost.
func withoutHooks(name string, rules int) config {
	c := margayConfig(name, rules, false)
	setUp := c.setUp
	c.setUp = func(ctx context.Context, s *site) error {
		if err := setUp(ctx, s); err != nil {
			return err
		}
		return s.unpin("judge-", "guard-")
	}
	return c
}

// withEarly is the same with the program before conntrack.
func withEarly(name string, rules int) config {
	return enforcedBy(name, enforcement{shape: shape{rules: rules}, early: true})
}

// unpin removes the links whose pins begin with one of the words; each word must find some.
func (s *site) unpin(words ...string) error {
	return s.each(func(at *seat) error { return at.unpin(words) })
}

func (at *seat) unpin(words []string) error {
	m, err := at.maps()
	if err != nil {
		return err
	}
	defer m.Close()
	for _, word := range words {
		pins, err := filepath.Glob(filepath.Join(m.LinkDir(), word+"*"))
		if err != nil {
			return err
		}
		if len(pins) == 0 {
			return fmt.Errorf("no links %s* in %s", word, m.LinkDir())
		}
		for _, pin := range pins {
			if err := os.Remove(pin); err != nil {
				return err
			}
		}
	}
	return nil
}

func (at *seat) maps() (*bpfmaps.Maps, error) {
	return bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: dataplane.Defaults().BPFFS, Instance: at.agent.instance})
}

// checkMaps looks into the kernel: are the node's pods ready, and are their policies of the size they are meant to be?
func (s *site) checkMaps(at *seat) error {
	m, err := at.maps()
	if err != nil {
		return err
	}
	defer m.Close()
	for _, side := range s.judged(at) {
		key := uint32(side.pod.IfIndex())
		var ep bpf.Endpoint
		if err := m.Map(bpf.MargayMapEndpoints).Lookup(&key, &ep); err != nil {
			return fmt.Errorf("read endpoint of %s: %w", side.pod.Name(), err)
		}
		if ep.Ifindex != key || ep.Flags&bpf.EPReady == 0 {
			return fmt.Errorf("%s is not ready", side.pod.Name())
		}
		word := ep.Ingress
		if side.egress {
			word = ep.Egress
		}
		slot, _ := bpfmaps.SplitPolicyWord(word)
		content, err := m.ReadSlot(slot)
		if err != nil {
			return err
		}
		if err := at.agent.isAbout(int(content.Shape.Rules), side.pod); err != nil {
			return err
		}
		if content.Shape.Flags&bpf.SlotInterpret != 0 {
			return fmt.Errorf("policy of %s is interpreted", side.pod.Name())
		}
	}
	return nil
}

// checkFlows looks for the established flows on each node: open, judged on the sides that are there, and by the shortcut
// if there is one.
func (s *site) checkFlows() error {
	return s.each(s.checkFlowsAt)
}

func (s *site) checkFlowsAt(at *seat) error {
	m, err := at.maps()
	if err != nil {
		return err
	}
	defer m.Close()
	want := map[uint8]bool{syscall.IPPROTO_UDP: true, syscall.IPPROTO_TCP: true}
	for f, err := range m.Flows.All() {
		if err != nil {
			return err
		}
		if f.A.Port() != clientPort && f.B.Port() != clientPort {
			continue
		}
		across := f.Entry.Flags&uint8(bpf.MargayCtFlagsCT_SHORTCUT) != 0
		egress, ingress := at == s.seats[0], at == s.seats[1]
		if !f.Open || (f.Entry.Egress != 0) != egress || (f.Entry.Ingress != 0) != ingress || across != s.shortcut {
			return fmt.Errorf("the flow %s %s protocol %d is not as it should be: %+v", f.A, f.B, f.Proto, f)
		}
		delete(want, f.Proto)
	}
	if len(want) > 0 {
		return fmt.Errorf("no established flows of protocols %v", want)
	}
	return nil
}

// forget unpins what the agents have left.
func (s *site) forget() error {
	return s.each(func(at *seat) error {
		if at == nil || at.agent == nil {
			return nil
		}
		return os.RemoveAll(bpfmaps.InstanceDir(dataplane.Defaults().BPFFS, at.agent.instance))
	})
}
