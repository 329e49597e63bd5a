package bpf

import (
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// Without the flows of an earlier agent its open TCP connections are in mid-flow, and of those that the host's stack never
// saw, by the shortcut, the kernel's conntrack does not know who opened them either. For a while it is believed that a
// packet is an answer if policy would allow what it answers (D-20). A pod that sends without an egress rule could use
// that, so it ends, and nothing that a pod can cause begins it: a table it has filled does not.

// expectAnswers begins a grace period if flows were lost. It lasts until the first plan is in force, however long that
// takes: before that no program is attached.
func (k *kernel) expectAnswers(grace time.Duration) error {
	if !k.maps.Flows.Lost() || grace <= 0 {
		return nil
	}
	return k.maps.Flows.SetMidFlowGrace(bpfmaps.OpenEnded)
}

// limitGrace gives the grace period its end, once policy is in force.
func (k *kernel) limitGrace(grace time.Duration) error {
	until, err := k.maps.Flows.MidFlowGrace()
	if err != nil || until != bpfmaps.OpenEnded {
		return err
	}
	if until, err = bpfmaps.KernelTime(grace); err != nil {
		return err
	}
	if err := k.maps.Flows.SetMidFlowGrace(until); err != nil {
		return err
	}
	k.log.Info("no flows of an earlier agent are known: for a while policy alone decides whether a TCP packet in mid-flow is an answer", "for", grace)
	return nil
}
