//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/lab"
)

// agent is a real agent on one node. It is stopped once policy is enforced, so that nothing it does is in the way; what
// it enforces stays.
type agent struct {
	instance string
	log      string
}

func margayConfig(name string, rules int, shortcut bool) config {
	return config{
		name: name, share: 1, denies: true, shortcut: shortcut,
		setUp:    func(ctx context.Context, s *site) error { return s.enforce(ctx, rules, shortcut) },
		verify:   func(s *site) error { return s.checkFlows() },
		tearDown: func(s *site) error { return s.forget() },
	}
}

// withoutGuard is the same with the netfilter programs taken away: not a way to run, but the difference tells what they
// cost.
func withoutGuard(name string, rules int) config {
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

// enforce runs an agent on each node until the policy of its pods is in force.
func (s *site) enforce(ctx context.Context, rules int, shortcut bool) error {
	return s.each(func(at *seat) error { return s.enforceAt(ctx, at, rules, shortcut) })
}

func (s *site) enforceAt(ctx context.Context, at *seat, rules int, shortcut bool) error {
	dir := filepath.Join(s.o.Work, at.node.Name())
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	text := policies(rules, s.client.Addr4(), s.server.Addr4(), s.seats[0].node.Name(), s.seats[1].node.Name())
	if err := os.WriteFile(filepath.Join(manifests, "bench.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	at.agent = &agent{instance: "bench-" + at.node.Namespace(), log: filepath.Join(dir, "agent.log")}
	out, err := os.Create(at.agent.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(s.o.Margay, "run", "--datastore", "directory", "--dir", manifests, "--node", at.node.Name(),
		"--instance", at.agent.instance, "--socket", filepath.Join(dir, "agent.sock"), fmt.Sprintf("--no-shortcut=%t", !shortcut))
	cmd.Stdout, cmd.Stderr = out, out
	if err := at.node.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", cmd, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = s.awaitPolicy(ctx, at, rules, ended)
	stop := cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(stop, os.ErrProcessDone) {
		stop = nil
	}
	select {
	case e := <-ended:
		return errors.Join(err, stop, e)
	case <-time.After(20 * time.Second):
		return errors.Join(err, stop, errors.New("the agent did not stop within 20 s"), cmd.Process.Kill())
	}
}

// awaitPolicy waits until the pods of the node are programmed with as many rules as there are.
func (s *site) awaitPolicy(ctx context.Context, at *seat, rules int, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := s.checkPolicy(at, rules)
		if problem == nil {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the agent ended; its log is %s: %w", at.agent.log, problem)
		case <-ctx.Done():
			return fmt.Errorf("policy is not enforced in time; the agent's log is %s: %w", at.agent.log, problem)
		case <-tick.C:
		}
	}
}

func (at *seat) maps() (*bpfmaps.Maps, error) {
	return bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: dataplane.Defaults().BPFFS, Instance: at.agent.instance})
}

// checkPolicy looks into the kernel: are the node's pods ready, and are their policies of the size they are meant to be?
func (s *site) checkPolicy(at *seat, rules int) error {
	m, err := at.maps()
	if err != nil {
		return err
	}
	defer m.Close()
	for _, side := range []struct {
		pod    *lab.Pod
		egress bool
	}{{s.client, true}, {s.server, false}} {
		if s.apart && side.egress != (at == s.seats[0]) {
			continue
		}
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
		if n := int(content.Shape.Rules); n < rules || n > rules+rules/10+10 {
			return fmt.Errorf("policy of %s has %d rules, want about %d", side.pod.Name(), n, rules)
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
