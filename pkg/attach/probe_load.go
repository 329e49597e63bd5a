package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfroom"
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
	maps := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range maps {
			m.Close()
		}
	}()
	for name, m := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue // a section of the object, which is made with the programs
		}
		if maps[name], err = ebpf.NewMap(m); err != nil {
			return fmt.Errorf("make map %s of %d entries: %w", name, m.MaxEntries, bpfroom.Explain(err))
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return refusal{fmt.Errorf("load the programs of the dataplane: %w", err)}
	}
	collection.Close()
	return nil
}

// refusal is an error of loading programs whose maps could be made.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// refusesProgram reports whether an error of probePrograms is the kernel's answer to a program, and not one of making maps or of something
// that has run out.
func refusesProgram(err error) bool {
	var r refusal
	var verifier *ebpf.VerifierError
	return errors.As(err, &r) && !bpfroom.Short(err) &&
		(errors.As(err, &verifier) || errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EFAULT)) // EFAULT: a mistake of the verifier
}
