//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
)

// enforce runs an agent on each node until the policy of its pods is in force.
func (s *site) enforce(ctx context.Context, e enforcement) error {
	return s.each(func(at *seat) error { return s.enforceAt(ctx, at, e) })
}

func (s *site) enforceAt(ctx context.Context, at *seat, e enforcement) error {
	dir := filepath.Join(s.o.Work, at.node.Name())
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	text := policies(e.shape, s.client.Addr4(), s.server.Addr4(), s.seats[0].node.Name(), s.seats[1].node.Name())
	if err := os.WriteFile(filepath.Join(manifests, "bench.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	at.agent = &agent{enforcement: e, instance: "bench-" + at.node.Namespace(), log: filepath.Join(dir, "agent.log"), socket: filepath.Join(dir, "agent.sock")}
	out, err := os.Create(at.agent.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(s.o.Margay, append([]string{"run", "--datastore", "directory", "--dir", manifests, "--node", at.node.Name(),
		"--socket", at.agent.socket}, at.agent.flags()...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := at.node.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", cmd, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = s.awaitPolicy(ctx, at, ended)
	if err == nil {
		at.agent.rss, err = rss(cmd.Process.Pid)
	}
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

// flags are those by which the dataplanes differ. The iptables dataplane has no instances: the namespace is its own.
func (a *agent) flags() []string {
	if a.backend != "" {
		return []string{"--dataplane", "iptables", "--iptables-backend", a.backend}
	}
	return []string{"--dataplane", "bpf", "--instance", a.instance, fmt.Sprintf("--no-shortcut=%t", !a.shortcut)}
}

// rss is the resident memory of a process, in bytes.
func rss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		return 0, fmt.Errorf("resident memory of process %d: %w", pid, err)
	}
	return kb << 10, nil
}

// awaitPolicy waits until the pods of the node are programmed with as many rules as there are.
func (s *site) awaitPolicy(ctx context.Context, at *seat, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := s.checkPolicy(ctx, at)
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

// checkPolicy reports whether the node's pods are ready, with policies of the size that they are meant to have.
func (s *site) checkPolicy(ctx context.Context, at *seat) error {
	if at.agent.backend == "" {
		return s.checkMaps(at)
	}
	answer, err := inspect.Client{Socket: at.agent.socket}.Ask(ctx, "/v1/endpoints", nil)
	if err != nil {
		return err
	}
	rows := map[string]inspect.EndpointRow{}
	for _, row := range answer.Endpoints {
		rows[row.Interface] = row
	}
	for i, pod := range []*lab.Pod{s.client, s.server} {
		row := rows[pod.Iface()]
		if at == s.seats[i] && (row.Name == "" || row.Condition != "" || row.Error != "") {
			return fmt.Errorf("%s is not ready: %s %s", pod.Name(), row.Condition, row.Error)
		}
	}
	for _, side := range s.judged(at) {
		direction := rows[side.pod.Iface()].Ingress
		if side.egress {
			direction = rows[side.pod.Iface()].Egress
		}
		if err := at.agent.isAbout(direction.Rules, side.pod); err != nil {
			return err
		}
	}
	return nil
}

// side is one direction of a pod that policy applies to.
type side struct {
	pod    *lab.Pod
	egress bool
}

// judged are those of a node.
func (s *site) judged(at *seat) (list []side) {
	if at == s.seats[0] && !at.agent.oneEnd {
		list = append(list, side{s.client, true})
	}
	if at == s.seats[1] {
		list = append(list, side{s.server, false})
	}
	return list
}

// isAbout compares a number of rules with those that there should be: the agent adds some of its own.
func (a *agent) isAbout(n int, pod *lab.Pod) error {
	if n < a.rules || n > a.rules+a.rules/10+10 {
		return fmt.Errorf("policy of %s has %d rules, want about %d", pod.Name(), n, a.rules)
	}
	return nil
}

// checkMarks looks for the established flows in the kernel's conntrack: their marks must say that policy has allowed them, so that
// their packets pass by one comparison.
func (s *site) checkMarks() error {
	marks, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		return err
	}
	return s.each(func(at *seat) error {
		want := map[uint8]bool{syscall.IPPROTO_UDP: true, syscall.IPPROTO_TCP: true}
		err := at.node.Do(func() error {
			c, err := conntrack.Open()
			if err != nil {
				return err
			}
			return errors.Join(c.Dump(conntrack.IPv4, conntrack.Filter{}, func(e conntrack.Entry) {
				g, turned, denied := marks.GenerationOf(e.Mark)
				if e.Original.SrcPort == clientPort && g != 0 && !turned && !denied {
					delete(want, e.Original.Protocol)
				}
			}), c.Close())
		})
		if err == nil && len(want) > 0 {
			err = fmt.Errorf("no established flows of protocols %v that policy has allowed", want)
		}
		return err
	})
}
