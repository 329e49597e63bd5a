package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/test/e2e/cluster/process"
)

// margay check reads a real API server as an agent would, with no more rights, and says what agents say of its objects.
func TestCheckReadsTheObjectsOfARealCluster(t *testing.T) {
	c := newCluster(t, options{})
	c.namespace("shop")
	n := 0
	check := func(kubeconfig string) (text string, status int) {
		t.Helper()
		n++
		log := filepath.Join(c.dir, fmt.Sprintf("check-%d.log", n))
		cmd := exec.Command(agentBinary(t), "check", "--datastore", "kubernetes", "--kubeconfig", kubeconfig)
		running, err := process.Start(c.nodes[0].Host, log, cmd)
		c.must(err)
		<-running.Done()
		out, err := os.ReadFile(log)
		c.must(err)
		return string(out), cmd.ProcessState.ExitCode()
	}
	kubeconfig := c.agentAccess()
	text, status := check(kubeconfig)
	if status != 0 || !strings.Contains(text, "datastore kubernetes has ") {
		t.Errorf("nothing is wrong: exit status %d:\n%s", status, text)
	}
	c.policy("shop", "odd", `{podSelector: {}, policyTypes: [Egress], ingress: [{}]}`)
	c.policy("shop", "lost", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "10.0.0.0/8", except: ["10.1.0.0/16"]}}]}]}`)
	const odd = "NetworkPolicy shop/odd: warning: spec.ingress: the rules have no effect, because policyTypes does not contain Ingress"
	if text, status = check(kubeconfig); status != 1 || !strings.Contains(text, odd) || strings.Contains(text, "shop/lost") {
		t.Errorf("a policy has rules without effect: exit status %d:\n%s", status, text)
	}
	c.deletePolicy("shop", "odd")
	if text, status = check(kubeconfig); status != 0 {
		t.Errorf("it is gone: exit status %d:\n%s", status, text)
	}
	none, err := c.plane.ServiceAccountKubeconfig(t.Context(), "shop", "default", time.Hour)
	c.must(err)
	if text, status = check(none); status != 2 || !strings.Contains(text, "check datastore kubernetes") || !strings.Contains(text, `user "system:serviceaccount:shop:default" may not`) {
		t.Errorf("without rights: exit status %d:\n%s", status, text)
	}
}
