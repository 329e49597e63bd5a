//go:build linux

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
)

// testShowPinned: what is enforced can be seen when its agent is gone.
func (n *liveNode) testShowPinned(t *testing.T) {
	n.want(0, []string{"no agent runs: this is the policy that the last agent left", "shop/web", "shop/db", n.db.Iface(), n.db.Addr4().String(),
		"tcx/ingress,tcx/egress", "1 policy, 2 rules", "no policy"}, "show", "endpoints")
	n.want(0, []string{"no agent runs", "Allow", "port 80", "NetworkPolicy shop/db ingress[0]", "no rule matches",
		"no policy decides (never reached)"}, "show", "rules", "shop/db")
	n.want(2, []string{"no local endpoint shop/nope is enforced"}, "show", "rules", "shop/nope")
	n.want(0, []string{"shop/web", "shop/db"}, "show", "flows")
	n.want(0, []string{"no agent runs", "NetworkPolicy", "shop", "db", "default"}, "show", "policies")
	n.want(0, []string{"no agent runs", n.web.Addr4().String(), n.web.Addr6().String()}, "show", "sets", "--namespace", "shop")
	n.want(0, []string{"from {set 1: " + n.web.Addr4().String() + ", " + n.web.Addr6().String() + "}"}, "show", "rules", "shop/db")
	n.want(1, []string{"not running: policy of 2 endpoints is enforced, as the last agent left it; no change is followed", "margay run", "margay cleanup"}, "show", "status")
	s := decode[inspect.StatusReport](t, n.want(1, nil, "show", "status", "-o", "json"))
	if !s.NoAgent || s.Ready || s.Endpoints != 2 || s.Enforced != 2 {
		t.Errorf("status without an agent: %+v", s)
	}
	n.want(2, []string{"no agent answers on", "only an agent knows the problems of objects", "margay check --dir DIR"}, "show", "problems")
}

// testAnotherSocket: an agent that runs and is asked in the wrong place is not said to have ended.
func (n *liveNode) testAnotherSocket(t *testing.T) {
	right := n.socket
	defer func() { n.socket = right }()
	n.socket = filepath.Join(t.TempDir(), "agent.sock")
	says := fmt.Sprintf("the agent (process %d) does not answer on %s, since it starts or has another --socket", n.agent.Process.Pid, n.socket)
	n.want(1, []string{says + ": policy of 2 endpoints is enforced"}, "show", "status")
	n.want(0, []string{says, "shop/web", "shop/db"}, "show", "endpoints")
	n.want(0, []string{says, "allow"}, "explain", "shop/web", "shop/db:80")
	n.want(1, []string{says + ": it was not checked"}, "check")
}

// questions are what explain is asked with an agent and without.
func (n *liveNode) questions() [][]string {
	return [][]string{
		{"shop/web", "shop/db:80"}, {"shop/web", "shop/db:81"}, {"shop/web", "shop/db:80/udp"}, {"shop/web", "shop/db:80", "-6"},
		{"shop/db", "shop/web:80"}, {"shop/web", "shop/db"}, {"shop/web", "shop/db/icmp"}, {"shop/web", "shop/db/47"}, {"web", "db:80", "-n", "shop"},
		{"192.0.2.1", "shop/db:80"}, {"shop/db", "192.0.2.1"}, {"2001:db8::1", "shop/web:80"}, {"shop/web", "shop/web:80"},
		{n.web.Addr4().String(), n.db.Addr4().String() + ":80"},
		{n.machine.Addr4().String(), "shop/db:81"}, {"shop/web", n.machine.Addr4().String() + ":81"},
	}
}

// explainAll answers the questions, each as it is printed with -o json.
func (n *liveNode) explainAll() map[string]explain.Explanation {
	answers := map[string]explain.Explanation{}
	for _, q := range n.questions() {
		out, code := n.cli(append([]string{"explain", "-o", "json"}, q...)...)
		if code > 1 {
			n.t.Errorf("explain %v: %s", q, out)
			continue
		}
		_, out, _ = strings.Cut("\n"+out, "\n{") // what is said before on standard error is behind it here
		out, _, _ = strings.Cut("{"+out, "no agent runs")
		out, _, _ = strings.Cut(out, "the agent has not read")
		answers[strings.Join(q, " ")] = decode[explain.Explanation](n.t, out)
	}
	return answers
}

// testBeforeTheFirstSnapshot: an agent that waits for its datastore has no objects, and what the last one left stays enforced. So the
// maps answer in its place, and nothing is compared with objects that are not there.
func (n *liveNode) testBeforeTheFirstSnapshot(t *testing.T, asked map[string]explain.Explanation) {
	n.launch("--datastore", "etcd", "--etcd-endpoints", "http://127.0.0.1:1")
	n.ready(func() bool {
		out, _ := n.cli("show", "status", "-o", "json")
		return decode[inspect.StatusReport](t, out).Inherited == 2
	}, "the agent to find the policy of two interfaces")
	const waits = "the agent has not read the datastore yet"
	n.want(0, []string{"not ready: policy of the last agent is enforced on 2 interfaces, and no change is followed yet"}, "show", "status")
	n.want(0, []string{waits, "shop/web", "shop/db", n.db.Addr4().String(), "1 policy, 2 rules"}, "show", "endpoints")
	n.want(0, []string{waits, "NetworkPolicy shop/db ingress[0]"}, "show", "rules", "shop/db")
	n.want(0, []string{waits, "NetworkPolicy", "db"}, "show", "policies")
	n.want(0, []string{waits, n.web.Addr4().String()}, "show", "sets", "--namespace", "shop")
	n.want(0, []string{"shop/web", "shop/db"}, "show", "flows")
	n.want(2, []string{waits}, "verify")
	n.want(1, []string{waits + ": the objects were not checked", "policy of the last agent is enforced on 2 interfaces"}, "check")
	n.explainsAs(t, asked)
	n.stop(syscall.SIGTERM)
}

// explainsAs: the answers are those of an agent that has its objects.
func (n *liveNode) explainsAs(t *testing.T, asked map[string]explain.Explanation) {
	t.Helper()
	decided := func(e explain.Explanation) string {
		text := fmt.Sprintf("%s %s -> %s %s", e.Verdict, e.Src, e.Dst, e.Packet)
		for _, s := range []*explain.Side{e.Egress, e.Ingress} {
			if s != nil && s.Decision != explain.DecisionNone {
				text += fmt.Sprintf("\n%s %s %s/%s %s %s", s.Verdict, s.Kind, s.Namespace, s.Name, s.Decision, s.Tier)
			}
		}
		for _, p := range e.Ports {
			text += fmt.Sprintf("\n%s %d-%d %s %s %s", p.Protocol, p.From, p.To, p.Verdict, p.Egress.Decision, p.Ingress.Decision)
		}
		return strings.ReplaceAll(text, "node this-node (", "node node (")
	}
	answers := n.explainAll()
	if len(answers) < 16 {
		t.Errorf("%d answers", len(answers))
	}
	for q, answer := range answers {
		if got, want := decided(answer), decided(asked[q]); got != want {
			t.Errorf("explain %s without an agent:\n%s\nwith one:\n%s", q, got, want)
		}
	}
}

// testExplainPinned: the maps answer as the agent did.
func (n *liveNode) testExplainPinned(t *testing.T, asked map[string]explain.Explanation) {
	node4 := n.machine.Addr4().String()
	n.want(0, []string{"a node may always talk to its own pods"}, "explain", node4, "shop/db:81")
	n.want(0, []string{"the destination is the pod's own node"}, "explain", "shop/web", node4+":81")
	n.explainsAs(t, asked)
	n.want(0, []string{"no agent runs: this is the policy that the last agent left", "by NetworkPolicy shop/db ingress[0]",
		"egress   allow: no policy selects shop/web for egress"}, "explain", "shop/web", "shop/db:80")
	n.want(1, []string{"no ingress rule of the policies that select shop/db matches (NetworkPolicy shop/db)"}, "explain", "shop/web", "shop/db:81")
	n.want(2, []string{"no agent can answer, and the kernel's maps know only pods of this node", "no pod shop/wob", "is shop/web meant?"}, "explain", "shop/wob", "shop/db:81")
	n.want(2, []string{"neither 192.0.2.1 nor 192.0.2.2 is a pod of this node"}, "explain", "192.0.2.1", "192.0.2.2")
}
