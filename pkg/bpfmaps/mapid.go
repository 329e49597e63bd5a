package bpfmaps

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapInfo is how struct bpf_map_info begins. The kernel returns as much of it as is asked for.
type mapInfo struct{ typ, id uint32 }

// idOf returns the kernel's id of a map. ebpf.Map.Info would also read a file in /proc, which takes most of the time of
// opening an array.
func idOf(m *ebpf.Map) (ebpf.MapID, error) {
	var info mapInfo
	attr := struct {
		fd, size uint32
		info     unsafe.Pointer // of 64 bits on every machine that Margay is built for
	}{uint32(m.FD()), uint32(unsafe.Sizeof(info)), unsafe.Pointer(&info)}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return 0, fmt.Errorf("ask for the id of map %s: %w", m, errno)
	}
	return ebpf.MapID(info.id), nil
}
