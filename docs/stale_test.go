package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stale are sentences that were true before a feature was there, with the feature. A new feature adds those that it makes false.
var stale = []struct{ pattern, feature string }{
	{`does not read other kinds`, "ClusterNetworkPolicy and Calico's kinds are read"},
	{`and nothing else today`, "ClusterNetworkPolicy and Calico's kinds are read"},
	{`kinds of Calico or Cilium`, "Calico's kinds are read"},
	{`none of Calico's own kinds`, "Calico's kinds are enforced"},
	{`(deny|order)[^.|]*(has|have) no equivalent`, "ClusterNetworkPolicies and Calico's policies deny and have an order"},
	{`no other mode to fall back`, "--dataplane auto falls back to iptables"},
	{`today BPF`, "iptables enforces, too"},
	{`(look around with|look for faults)`, "the image with iptables is for the iptables dataplane"},
	{`Your nodes have a kernel older than 6[.]6[.]`, "older kernels have the iptables dataplane"},
	{`Linux \| 6[.]6 and newer`, "older kernels have the iptables dataplane"},
	{`Linux 6[.]6 or newer, (root|and)`, "older kernels have the iptables dataplane"},
	{`Is a new pod ever open\?\*\* No`, "after a boot pods are open until the agent is ready"},
	{`mark bits of both do not overlap`, "those of the iptables dataplane are Calico's"},
}

// A document that denies a feature misleads as much as a missing one. Wording is compared without line breaks.
func TestNoDocumentDeniesAFeature(t *testing.T) {
	all := documents(t)
	for _, name := range []string{"Dockerfile", "Makefile"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	all["deploy"] = manifests(t)
	for name, text := range all {
		text = strings.Join(strings.Fields(text), " ")
		for _, s := range stale {
			if found := regexp.MustCompile(s.pattern).FindString(text); found != "" {
				t.Errorf("%s: %q, but %s", name, found, s.feature)
			}
		}
	}
}
