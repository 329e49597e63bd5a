package config

import (
	"net"
	"os"
	"regexp"
	"slices"
	"testing"
)

// What answers on the node's loopback beside Calico: Felix (metrics, health), Typha (metrics, health), kube-controllers
// and BGP. Another program at the address of our probes has the kubelet restart the agent for ever.
var calicoPorts = []string{"9081", "9091", "9093", "9094", "9095", "9098", "9099", "9199", "9198", "9900"}

func TestDefaultPortsAreNoneOfCalicos(t *testing.T) {
	for _, address := range []string{Defaults().HealthAddress, Defaults().MetricsAddress} {
		if _, port, err := net.SplitHostPort(address); err != nil || slices.Contains(calicoPorts, port) {
			t.Errorf("%s is taken beside Calico (%v)", address, err)
		}
	}
}

func TestDeployedProbesAskAtTheDefaultAddress(t *testing.T) {
	for file, pattern := range map[string]string{
		"../../deploy/base/daemonset.yaml":                `httpGet: \{host: (\S+), port: (\d+), path: /(?:livez|readyz)\}`,
		"../../deploy/helm/margay/templates/_helpers.tpl": `\.Values\.healthAddress \| default "(\S+):(\d+)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s: no probe is found", file)
		}
		for _, f := range found {
			if got := net.JoinHostPort(f[1], f[2]); got != Defaults().HealthAddress {
				t.Errorf("%s: a probe asks at %s, the agent is at %s", file, got, Defaults().HealthAddress)
			}
		}
	}
}

// A tenant's pod with the port of the probes as its hostPort would answer them, and the kubelet restart the agent for ever. Kubernetes keeps
// such a pod off a node with a pod that declares the port.
func TestDeployedAgentsDeclareTheirPorts(t *testing.T) {
	for file, pattern := range map[string]string{
		"../../deploy/base/daemonset.yaml":                `\{name: (health|metrics), containerPort: (\d+), hostPort: (\d+), protocol: TCP\}`,
		"../../deploy/helm/margay/templates/_helpers.tpl": `"(health|metrics)" \(\.Values\.\S+ \| default "127\.0\.0\.1:(\d+)(?:"\))`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		declared := map[string]string{}
		for _, f := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			if len(f) > 3 && f[2] != f[3] {
				t.Errorf("%s: the hostPort of %s is another one", file, f[1])
			}
			declared[f[1]] = f[2]
		}
		for name, address := range map[string]string{"health": Defaults().HealthAddress, "metrics": Defaults().MetricsAddress} {
			if _, port, err := net.SplitHostPort(address); err != nil || declared[name] != port {
				t.Errorf("%s declares port %q for %s, the agent is at %s (%v)", file, declared[name], name, address, err)
			}
		}
	}
}
