package bpf

import (
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// If the flows of an earlier agent are lost, its open TCP connections are in mid-flow. The kernel's conntrack does not
// know the opener of those that took the shortcut, because the host's stack never saw them. So for a grace period a packet
// counts as an answer if policy would allow the packet that it answers (D-20). A pod without an egress rule for its
// packets could use that. Therefore the period ends, and nothing that a pod can cause begins it, a full flow map neither.

// expectAnswers begins a grace period if flows were lost. It lasts until the first plan is in force, however long that
// takes: before that no program is attached.
func (k *kernel) expectAnswers(grace time.Duration) error {
	if !k.maps.Flows.Lost() || grace <= 0 {
		return nil
	}
	k.limited = false
	return k.maps.Flows.SetMidFlowGrace(bpfmaps.OpenEnded)
}

// limitGrace gives the grace period its end, once policy is in force. Every plan calls it.
func (k *kernel) limitGrace(grace time.Duration) error {
	if k.limited {
		return nil
	}
	until, err := k.maps.Flows.MidFlowGrace()
	if err != nil {
		return err
	}
	if until != bpfmaps.OpenEnded {
		k.limited = true
		return nil
	}
	if until, err = bpfmaps.KernelTime(grace); err != nil {
		return err
	}
	if err := k.maps.Flows.SetMidFlowGrace(until); err != nil {
		return err
	}
	k.limited = true
	k.log.Info("no flows of an earlier agent are known: for a while policy alone decides whether a TCP packet in mid-flow is an answer", "for", grace)
	return nil
}
