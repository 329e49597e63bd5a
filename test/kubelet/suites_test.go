package kubelet

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/traffic"
)

// TestSuitesOfOthers runs the end-to-end tests that Kubernetes and SIG Network have released for their policies, on two nodes of real parts.
func TestSuitesOfOthers(t *testing.T) {
	for name, w := range map[string]way{"bpf": kustomizedBPF, "iptables": kustomizedIPTables} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.loadSuites()
			c.kubectl("apply", "-f", clusterPolicyCRD(t))
			w.install(c)
			c.rolledOut("margay")
			t.Run("Kubernetes", func(t *testing.T) {
				out := c.suite(t, "kubernetes.test", "-provider=skeleton", "-ginkgo.no-color", "-ginkgo.timeout=2h")
				t.Log(summary(t, out, `(?m)^Ran \d+ of \d+ Specs.*$`))
			})
			t.Run("ClusterNetworkPolicy", func(t *testing.T) {
				out := c.suite(t, "networkpolicyapi.test", "-test.v")
				t.Logf("%d cases passed: %s", strings.Count(out, "        --- PASS: "), summary(t, out, `(?m)^--- PASS: TestClusterNetworkPolicy.*$`))
			})
		})
	}
}

// suite runs the tests of a binary on the first node, as the cluster's administrator, and returns what it prints.
func (c *cluster) suite(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := c.node.command(binary, append([]string{"-kubeconfig=" + c.kubeconfig, "-test.timeout=3h"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// summary is the line of a suite that says what ran: without one, nothing did.
func summary(t *testing.T, out, pattern string) string {
	t.Helper()
	line := regexp.MustCompile(pattern).FindString(out)
	if line == "" {
		t.Fatalf("no line %q in:\n%s", pattern, out)
	}
	return line
}

// standIn takes the place of agnhost where the kernel has no sockets of SCTP: command sctp does that part.
const standIn = `#!/bin/bash
case "$*" in
connect*--protocol=sctp*)
	for arg; do
		case $arg in
		--timeout=*) timeout=${arg#*=} ;;
		*:*) to=$arg ;;
		esac
	done
	exec sctp connect "$to" "$timeout" ;;
porter)
	ports=${!SERVE_SCTP_PORT_*}
	if [ -n "$ports" ]; then sctp serve ${ports//SERVE_SCTP_PORT_/} & fi
	if [ "${!SERVE_*}" = "$ports" ]; then wait; fi ;;
esac
exec agnhost "$@"
`

// loadSuites gives the runtimes the image that the suites' pods run, by the names that the suites know.
func (c *cluster) loadSuites() {
	c.t.Helper()
	agnhost, sctp, root := filepath.Join(c.node.bin, "agnhost"), filepath.Join(c.node.bin, "sctp"), c.node.file("agnhost")
	c.must(copyTool(root, "/bin/bash"))
	if traffic.SCTPMissing() == nil {
		c.must(copyFile(agnhost, filepath.Join(root, "agnhost")))
	} else {
		c.must(os.WriteFile(filepath.Join(root, "agnhost"), []byte(standIn), 0o755))
	}
	for _, version := range []string{"2.45", "2.63.0"} {
		c.loadImage(image{
			Name: "registry.k8s.io/e2e-test-images/agnhost:" + version, Root: root, Files: []string{agnhost, sctp},
			Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
		})
	}
}

// clusterPolicyCRD is the file of the CRD in the module of the API.
func clusterPolicyCRD(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	if err != nil {
		t.Fatalf("find the module of ClusterNetworkPolicy: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml")
}
