package node

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// openAuto opens the BPF dataplane if the kernel has the features that it needs, and otherwise the iptables dataplane. Faults that can
// be repaired without another kernel do not lead to the iptables dataplane but to an error: a container without CAP_BPF, or a BPF file
// system that is not mounted.
func openAuto(c config.Config, log *slog.Logger) (*Dataplane, error) {
	return auto{
		kernel:   func() error { return kernelLacks(attach.ProbeKernel(c.BPFFS)) },
		programs: func() error { return kernelLacks(attach.Probe(c.BPFFS)) },
		bpf:      func() (*Dataplane, error) { return open(composeBPF, c, log) },
		iptables: func() (*Dataplane, error) { return open(composeIPTables, c, log) },
	}.open()
}

// auto is the choice of a dataplane.
type auto struct {
	kernel, programs func() error // what BPF lacks for want of another kernel; programs takes time and tries more
	bpf, iptables    func() (*Dataplane, error)
}

func (a auto) open() (*Dataplane, error) {
	lacks := a.kernel()
	if lacks == nil {
		opened, err := a.bpf()
		if err == nil {
			opened.Chosen.How = inspect.ChoicePreferred
			return opened, nil
		}
		if lacks = a.programs(); lacks == nil { // else the kernel has everything and refuses the programs
			return nil, err
		}
	}
	opened, err := a.iptables()
	if err != nil {
		return nil, fmt.Errorf("neither dataplane can run here: %s; %s; margay check says more", oneLine(lacks), oneLine(err))
	}
	opened.Chosen = inspect.Choice{How: inspect.ChoiceFallback, Reason: oneLine(lacks)}
	return opened, nil
}

// kernelLacks returns the features that BPF mode needs and this kernel does not have, in one line; nil: there are none. If this
// process lacks the rights of BPF mode, the kernel's features are not known.
func kernelLacks(r attach.Report) error {
	lacking, err := attach.LackingCapabilities()
	if err != nil || slices.ContainsFunc(lacking, knownCapability) || !r.KernelLacks() {
		return nil
	}
	return r.Err()
}

// knownCapability reports whether the kernel knows a capability. A container runtime cannot grant others.
func knownCapability(name string) bool {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	last, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		return true
	}
	number := map[string]int{"CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON}[name]
	return number <= last
}
