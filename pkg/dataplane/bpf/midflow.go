package bpf

import (
	"fmt"
	"time"

	"github.com/margay-project/margay/bpf"
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
	was, _, err := k.boundGrace(grace)
	if err != nil {
		return err
	}
	k.limited = true
	if was == bpfmaps.OpenEnded {
		k.log.Info("no flows of an earlier agent are known: for a while policy alone decides whether a TCP packet in mid-flow is an answer", "for", grace)
	}
	return nil
}

// relimitGrace has the next plan limit the grace period once more.
func (k *kernel) relimitGrace() { k.limited = false }

// boundGrace has the grace period end within grace from now. was is the end that it had; shortened: that was later.
func (k *kernel) boundGrace(grace time.Duration) (was uint64, shortened bool, err error) {
	if was, err = k.maps.Flows.MidFlowGrace(); err != nil {
		return 0, false, err
	}
	latest, err := bpfmaps.KernelTime(grace)
	if err != nil || was <= latest {
		return was, false, err
	}
	return was, true, k.maps.Flows.SetMidFlowGrace(latest)
}

// graceFault describes a grace period that ends later than it can; empty: it does not. Until a plan has limited it there is none.
func (k *kernel) graceFault(grace time.Duration) (string, error) {
	if !k.limited {
		return "", nil
	}
	until, err := k.maps.Flows.MidFlowGrace()
	if err != nil {
		return "", err
	}
	latest, err := bpfmaps.KernelTime(grace)
	if err != nil || until <= latest {
		return "", err
	}
	return fmt.Sprintf("map %s has TCP in mid-flow count as answers until %d, should have %d at the latest", bpf.MargayMapMidflowGrace, until, latest), nil
}
