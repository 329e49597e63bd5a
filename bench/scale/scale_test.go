//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// What is measured must be what it is said to be: endpoints on both sides, policy in force on the local ones, sets with
// members.
func TestFeedsAreWhatTheySay(t *testing.T) {
	for name, f := range map[string]feed{
		"tags":        tagPolicies(nil, 50, 1000, 310),
		"isolated":    isolated(nil, 1000),
		"selectors":   selectorPolicies(nil, 100, 30_000),
		"deployments": deployments(nil, 100, 12_000, 500),
	} {
		c := newCore(scenario{agent: true})
		c.take(append(f.updates, model.InSync{}))
		sizes := c.graph.Sizes()
		if sizes.LocalEndpoints != f.local || sizes.RemoteEndpoints != f.remote {
			t.Errorf("%s: %d local and %d remote endpoints, want %d and %d", name, sizes.LocalEndpoints, sizes.RemoteEndpoints, f.local, f.remote)
		}
		if sizes.Members < 100 {
			t.Errorf("%s: %d sets with %d members: too little to measure", name, sizes.Sets, sizes.Members)
		}
		policies := 0
		for _, ep := range c.graph.LocalEndpoints() {
			for _, tier := range ep.Ingress.Tiers {
				policies += len(tier.Policies)
			}
		}
		if policies == 0 {
			t.Errorf("%s: no policy applies to a local endpoint", name)
		}
	}
}

// Remote pods cost little (the published figure of Felix is 4 to 5 kB). A rise is to be seen here and not by users.
func TestARemotePodCostsLessThan600Bytes(t *testing.T) {
	result, c := measure(scenario{name: "small", agent: true, changes: true, feed: func(sink func([]model.Update)) feed {
		return deployments(sink, 20, 50_000, 100)
	}})
	c.keep()
	if result.PerPod < 50 || result.PerPod > 600 {
		t.Errorf("%.0f bytes are kept of each remote pod", result.PerPod)
	}
	for _, s := range result.Changes {
		switch {
		case s.Name == "status of a remote pod" && s.Allocs > 30, s.Name == "nothing to do" && s.Allocs > 15:
			t.Errorf("%s: %d allocations", s.Name, s.Allocs)
		}
	}
	if text := table([]sample{result}); !strings.Contains(text, "small") || !strings.Contains(text, "explain") {
		t.Errorf("the table lacks results:\n%s", text)
	}
}
