package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// jitSetting exists in the first network namespace only, and only where the kernel has a JIT compiler that can be off.
const jitSetting = "/proc/sys/net/core/bpf_jit_enable"

func probeJIT() error {
	value, err := os.ReadFile(jitSetting)
	if err != nil {
		return nil // not readable here: whether the programs load decides
	}
	return jitError(string(value))
}

// jitError judges the content of jitSetting. The interpreter rounds stack frames up so far that the programs do not
// fit, and calls no kernel function.
func jitError(setting string) error {
	if strings.TrimSpace(setting) == "0" {
		return errors.New("the BPF JIT is off: set net.core.bpf_jit_enable=1")
	}
	return nil
}

// probeEntries is how large maps are made to try loading: their size changes nothing for the verifier.
const probeEntries = 64

// probePrograms loads the programs that the agent attaches, with the largest configuration.
func probePrograms() error {
	spec, err := bpf.LoadMargay()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	for _, m := range spec.Maps {
		if m.Type != ebpf.RingBuf {
			m.MaxEntries = min(m.MaxEntries, probeEntries)
		}
	}
	config := bpf.Config{
		MarkSeen: 1 << 16, MarkJudge: 1 << 17, MarkOwn: 1 << 18, FlowQuota: 1, Hz: 250, EventRate: 1000,
		InterfacePrefixLen: 4, InterfacePrefix: [8]uint8{'c', 'a', 'l', 'i'},
	}
	if err := spec.Variables[bpf.MargayVarCfg].Set(config); err != nil {
		return fmt.Errorf("set configuration: %w", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load the programs of the dataplane: %w", err)
	}
	collection.Close()
	return nil
}
