package marks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// protocol is one family of iptables' legacy backend.
type protocol struct {
	command string
	names   string // the file that lists its tables
	family  int
	level   int // of socket options
	layout  entryLayout
}

var protocols = []protocol{
	{"iptables-legacy", "ip_tables_names", unix.AF_INET, unix.SOL_IP, layout4},
	{"ip6tables-legacy", "ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, layout6},
}

// Socket options of ip_tables and ip6_tables (include/uapi/linux/netfilter_ipv4/ip_tables.h), and the sizes of their
// arguments and results.
const (
	getInfo    = 64
	getEntries = 65

	nameSize      = 32
	infoSize      = nameSize + 4 + 2*5*4 + 2*4
	entriesHeader = nameSize + 8
)

// hookNames are the built-in chains in the order of the kernel's hooks.
var hookNames = [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// legacy reads the tables of iptables' legacy backend that exist; reading makes none.
func legacy() ([]User, error) {
	var all []User
	var errs []error
	for _, p := range protocols {
		names, err := os.ReadFile("/proc/thread-self/net/" + p.names)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		errs = append(errs, err)
		for _, name := range strings.Fields(string(names)) {
			users, err := p.table(name)
			if err != nil {
				errs = append(errs, fmt.Errorf("read table %s of %s: %w", name, p.command, err))
			}
			all = append(all, users...)
		}
	}
	return all, errors.Join(errs...)
}

// table reads one table. It may grow between the question for its size and that for its entries.
func (p protocol) table(name string) ([]User, error) {
	socket, err := unix.Socket(p.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	const tries = 10
	for try := 1; ; try++ {
		b, err := p.read(socket, name)
		if errors.Is(err, unix.EAGAIN) && try < tries {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b.users(p.command + " " + name)
	}
}

func (p protocol) read(socket int, name string) (blob, error) {
	info := make([]byte, infoSize)
	copy(info[:nameSize-1], name)
	if err := getsockopt(socket, p.level, getInfo, info); err != nil {
		return blob{}, err
	}
	number := func(at int) uint32 { return binary.NativeEndian.Uint32(info[at:]) }
	valid, size := number(nameSize), number(infoSize-4)
	b := blob{hooks: map[int]string{}, layout: p.layout}
	for hook, chain := range hookNames {
		if valid>>hook&1 == 1 {
			b.hooks[int(number(nameSize+4+4*hook))] = chain
		}
	}
	answer := make([]byte, entriesHeader+int(size))
	copy(answer[:nameSize-1], name)
	binary.NativeEndian.PutUint32(answer[nameSize:], size)
	if err := getsockopt(socket, p.level, getEntries, answer); err != nil {
		return blob{}, err
	}
	b.entries = answer[entriesHeader:]
	return b, nil
}

// getsockopt fills buffer, whose beginning is part of the question.
func getsockopt(socket, level, option int, buffer []byte) error {
	length := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return errno
	}
	return nil
}
