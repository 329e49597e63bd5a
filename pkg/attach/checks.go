package attach

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

func probeMap(spec ebpf.MapSpec) func() error {
	return func() error {
		m, err := ebpf.NewMap(&spec)
		if err != nil {
			return err
		}
		return m.Close()
	}
}

func probeBTF() error {
	_, err := btf.LoadKernelSpec()
	return err
}

// probeBPFFS mounts one elsewhere if dir is no BPF file system, since a probe must leave nothing behind.
// howToMount is what the node's administrator does once.
const howToMount = "mount -t bpf bpf /sys/fs/bpf"

func probeBPFFS(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && uint32(st.Type) == unix.BPF_FS_MAGIC {
		if st.Flags&unix.ST_RDONLY != 0 {
			return fmt.Errorf("BPF file system on %s is mounted read-only: remount it (mount -o remount,rw %s), and mount it without readOnly into a container", dir, dir)
		}
		return nil
	}
	if err := mountable(dir); err != nil {
		return fmt.Errorf("BPF file system not mounted on %s, and there is no directory for it: %w; make the directory and mount one there "+
			"(mount -t bpf bpf %s), or name another with --bpffs", dir, err, dir)
	}
	temporary, err := os.MkdirTemp("", "margay-probe-")
	if err != nil {
		return fmt.Errorf("BPF file system not mounted on %s (%s), and mounting it cannot be tried: %w", dir, howToMount, err)
	}
	if err = unix.Mount("bpf", temporary, "bpf", 0, ""); err != nil {
		err = fmt.Errorf("BPF file system not mounted on %s (%s), and this process cannot mount it: %w", dir, howToMount, err)
	} else {
		err = unix.Unmount(temporary, unix.MNT_DETACH)
	}
	return errors.Join(err, os.Remove(temporary))
}

// mountable reports why dir is no directory and cannot be made one; nil: it is, or can be. It makes nothing.
func mountable(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is a file", at)
		case err == nil && at == filepath.Clean(dir):
			return nil
		case err == nil:
			if err := unix.Access(at, unix.W_OK); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			return nil
		case at == filepath.Dir(at):
			return err
		}
	}
}

func probeMapped() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	memory, err := unix.Mmap(m.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	memory[0] = 1
	var value uint64
	err = m.Lookup(uint32(0), &value)
	if err == nil && value == 0 {
		err = errors.New("a store is not seen in the map")
	}
	return errors.Join(err, unix.Munmap(memory))
}

// probeInner puts an array of another size than the template's into an array of maps.
func probeInner() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_INNER_MAP}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return err
	}
	defer outer.Close()
	larger := *inner
	larger.MaxEntries = 3
	m, err := ebpf.NewMap(&larger)
	if err != nil {
		return err
	}
	defer m.Close()
	return outer.Put(uint32(0), uint32(m.FD()))
}

func probeBatch() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 2})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.BatchUpdate([]uint32{1, 2}, []uint32{1, 2}, nil)
	return err
}

// probeHelper asks whether TC programs may call a helper.
func probeHelper(name string) func() error {
	helpers := map[string]asm.BuiltinFunc{
		"bpf_loop": asm.FnLoop, "bpf_jiffies64": asm.FnJiffies64,
		"bpf_redirect_peer": asm.FnRedirectPeer,
	}
	return func() error { return features.HaveProgramHelper(ebpf.SchedCLS, helpers[name]) }
}

// probeKernelFunction asks whether the kernel has a function for BPF programs.
func probeKernelFunction(name string) func() error {
	return func() error {
		kernel, err := btf.LoadKernelSpec()
		if err != nil {
			return err
		}
		var f *btf.Func
		return kernel.TypeByName(name, &f)
	}
}

// probeSyscall runs a program of the type by which the agent walks over flows.
func probeSyscall() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "margay_probe", Type: ebpf.Syscall, Flags: unix.BPF_F_SLEEPABLE, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer program.Close()
	_, err = program.Run(&ebpf.RunOptions{Context: uint64(0)})
	return err
}

// probeTCX attaches to an interface that cannot exist: a kernel that knows these links complains about that.
func probeTCX() error {
	program, err := probeProgram(ebpf.SchedCLS, ebpf.AttachNone)
	if err != nil {
		return err
	}
	defer program.Close()
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: math.MaxInt32, Program: program, Attach: ebpf.AttachTCXIngress,
	})
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	return attached.Close()
}

// probeNetfilter attaches to a protocol family that BPF programs cannot be attached to, so that no packet is touched: a
// kernel that knows these links complains about that.
func probeNetfilter() error {
	program, err := probeProgram(ebpf.Netfilter, ebpf.AttachNetfilter)
	if err != nil {
		return err
	}
	defer program.Close()
	attached, err := link.AttachNetfilter(link.NetfilterOptions{
		Program: program, ProtocolFamily: link.NetfilterProtoARP, Hook: link.NetfilterInetForward, Priority: firstPriority,
	})
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	return attached.Close()
}

func probeProgram(kind ebpf.ProgramType, at ebpf.AttachType) (*ebpf.Program, error) {
	accept := int32(1) // NF_ACCEPT
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "margay_probe", Type: kind, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, accept), asm.Return()},
	})
}
