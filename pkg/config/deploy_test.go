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
