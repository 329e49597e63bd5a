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
	probe := regexp.MustCompile(`httpGet: \{host: (\S+), port: (\d+), path: /(?:livez|readyz)\}`)
	for _, file := range []string{"../../deploy/base/daemonset.yaml", "../../deploy/helm/margay/templates/daemonset.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := probe.FindAllStringSubmatch(string(text), -1)
		if len(found) != 2 {
			t.Errorf("%s: %d probes, want 2", file, len(found))
		}
		for _, f := range found {
			if got := net.JoinHostPort(f[1], f[2]); got != Defaults().HealthAddress {
				t.Errorf("%s: a probe asks at %s, the agent is at %s", file, got, Defaults().HealthAddress)
			}
		}
	}
}
