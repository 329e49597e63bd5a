package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfroom"
)

// Check is one thing BPF mode needs of the kernel, tried out.
type Check struct {
	Name   string // short and constant, such as "TCX links"
	Since  string // kernel version that brought it
	Needed bool   // false: one feature is missing without it, For says which
	For    string
	Setup  bool  // the node's administrator can mend it without another kernel
	Err    error // nil: works
}

// OK says whether it works.
func (c Check) OK() bool { return c.Err == nil }

// Detail describes the problem in one line; empty: there is none.
func (c Check) Detail() string {
	if c.OK() {
		return ""
	}
	line := strings.ReplaceAll(c.Err.Error(), "\n", "; ")
	if c.Since != "" {
		line = "Linux " + c.Since + " and later: " + line
	}
	if !c.Needed {
		line += "; without it no " + c.For
	}
	return line
}

// String is one line for people.
func (c Check) String() string {
	if c.OK() {
		return c.Name + ": ok"
	}
	if c.Since == "" {
		return c.Name + ": " + c.Detail()
	}
	return c.brief() + ": " + c.Detail()
}

// brief names a check that failed and how. For a check that does not depend on the version of Linux it adds the reason.
func (c Check) brief() string {
	switch {
	case errors.Is(c.Err, unix.EPERM):
		return c.Name + ": not permitted"
	case bpfroom.Short(c.Err):
		return c.Name + ": " + c.Detail()
	case c.Since == "":
		return c.Detail()
	}
	return c.Name + ": missing (Linux " + c.Since + ")"
}

// Report is what Probe found.
type Report struct {
	Kernel string // release, as uname says
	Checks []Check
}

// Err is nil if BPF mode can run, and else one line that names all that is missing.
func (r Report) Err() error {
	var lacks []string
	for _, c := range r.Checks {
		if c.Needed && !c.OK() {
			lacks = append(lacks, c.brief())
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	if !r.KernelLacks() {
		return fmt.Errorf("the BPF dataplane cannot run here (kernel %s): %s", r.Kernel, strings.Join(lacks, "; "))
	}
	return fmt.Errorf("kernel %s cannot run the BPF dataplane: %s", r.Kernel, strings.Join(lacks, "; "))
}

// KernelLacks reports whether BPF mode needs something that this kernel does not have, as opposed to settings of the node and
// to what this process may not do.
func (r Report) KernelLacks() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.Needed && !c.OK() && !c.Setup && !errors.Is(c.Err, unix.EPERM)
	})
}

// Probe tries out what BPF mode needs, by making small maps and programs, not by version numbers. If all that works
// it also loads the programs of the dataplane, over small maps. bpffs is where the BPF file system is or is to be
// mounted. It attaches nothing to any interface, and leaves nothing behind. It needs about half a second of CPU.
func Probe(bpffs string) Report {
	r := ProbeKernel(bpffs)
	if r.Err() == nil { // otherwise it is known why they do not load
		err := probePrograms()
		r.Checks = append(r.Checks, Check{Name: "programs of the dataplane", Needed: true, Setup: err != nil && !refusesProgram(err), Err: err})
		if err != nil {
			r.doubt(bpfroom.Lacks())
		}
	}
	return r
}

// ProbeKernel is Probe without loading the programs of the dataplane, which takes most of the time.
func ProbeKernel(bpffs string) Report {
	r := Report{Kernel: release()}
	add := func(name, since string, try func() error) {
		r.Checks = append(r.Checks, Check{Name: name, Since: since, Needed: true, Err: try()})
	}
	setup := func(name string, err error) {
		r.Checks = append(r.Checks, Check{Name: name, Needed: true, Setup: true, Err: err})
	}
	setup("BPF JIT compiler", probeJIT())
	add("bpf system call", "4.18", probeMap(ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}))
	add("kernel type information (BTF)", "5.4", probeBTF)
	setup("BPF file system", probeBPFFS(bpffs))
	add("LPM tries", "4.11", probeMap(ebpf.MapSpec{
		Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_NO_PREALLOC,
	}))
	add("ring buffers", "5.8", probeMap(ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(unix.Getpagesize())}))
	add("arrays mapped into memory", "5.5", probeMapped)
	add("inner arrays of any size", "5.10", probeInner)
	add("writing many entries at once", "5.6", probeBatch)
	add("programs of type syscall", "5.14", probeSyscall)
	add("helper bpf_loop", "5.17", probeHelper("bpf_loop"))
	add("helper bpf_jiffies64", "5.6", probeHelper("bpf_jiffies64"))
	add("kernel function bpf_rdonly_cast", "6.2", probeKernelFunction("bpf_rdonly_cast"))
	add("kernel function bpf_dynptr_from_skb", "6.4", probeKernelFunction("bpf_dynptr_from_skb"))
	add("TCX links", "6.6", probeTCX)
	add("netfilter links", "6.4", probeNetfilter)
	r.Checks = append(r.Checks, Check{
		Name: "helper bpf_redirect_peer", Since: "5.10", For: "same-node shortcut", Err: probeHelper("bpf_redirect_peer")(),
	})
	if r.Err() != nil {
		r.doubt(bpfroom.Lacks())
	}
	return r
}

// doubt takes back what failed checks say of the kernel if this process is out of something (nil: of nothing): another kernel would not mend
// it.
func (r *Report) doubt(lacks error) {
	for i := range r.Checks {
		c := &r.Checks[i]
		switch {
		case c.OK() || !c.Needed || c.Setup:
		case bpfroom.Short(c.Err):
			c.undecided(c.Err)
		case lacks != nil:
			c.undecided(lacks)
		}
	}
}

// undecided notes that a check could not be tried for want of something.
func (c *Check) undecided(lacks error) {
	c.Setup, c.Since, c.Err = true, "", fmt.Errorf("cannot be tried: %w", lacks)
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return strings.TrimRight(string(u.Release[:]), "\x00")
}
