package iptables

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket options of ip_tables and ip6_tables (include/uapi/linux/netfilter_ipv4/ip_tables.h), and the sizes of their arguments
// and results.
const (
	getInfo    = 64
	getEntries = 65

	tableNameSize = 32
	infoSize      = tableNameSize + 4 + 2*5*4 + 2*4
	entriesHeader = tableNameSize + 8
)

// legacyLayout has the offsets of fields in an entry of a table (struct ipt_entry, ip6t_entry), in bytes.
type legacyLayout struct{ family, level, nextAt, countersAt int }

var legacyLayouts = map[Family]legacyLayout{
	V4: {unix.AF_INET, unix.SOL_IP, 90, 96},
	V6: {unix.AF_INET6, unix.SOL_IPV6, 142, 152},
}

func (m *machine) stamp(family Family, table string) (Stamp, error) {
	if m.backend == NFT {
		return m.transactions.stamp(family, table)
	}
	var stamp Stamp
	err := legacyLayouts[family].ask(func(socket int) (err error) {
		stamp, err = legacyLayouts[family].info(socket, table)
		return err
	})
	if err != nil {
		err = fmt.Errorf("look at the legacy %v table %s: %w", family, table, err)
	}
	return stamp, err
}

func (m *machine) activate(family Family, table string) error {
	if m.backend != NFT {
		return nil
	}
	return m.transactions.activate(family, table)
}

func (m *machine) contents(family Family, table string) (digest [16]byte, err error) {
	if m.backend == NFT {
		return digest, nil
	}
	err = legacyLayouts[family].ask(func(socket int) (err error) {
		digest, err = legacyLayouts[family].contents(socket, table)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the legacy %v table %s: %w", family, table, err)
	}
	return digest, err
}

// ask asks one question, again if the table changed in the middle of it.
func (l legacyLayout) ask(question func(socket int) error) error {
	socket, err := unix.Socket(l.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	const tries = 10
	for try := 1; ; try++ {
		if err := question(socket); !errors.Is(err, unix.EAGAIN) || try == tries {
			return err
		}
	}
}

func (l legacyLayout) info(socket int, table string) (Stamp, error) {
	info := make([]byte, infoSize)
	copy(info[:tableNameSize-1], table)
	if err := l.getsockopt(socket, getInfo, info); err != nil {
		return Stamp{}, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	return Stamp{Entries: binary.NativeEndian.Uint32(info[infoSize-8:]), Size: binary.NativeEndian.Uint32(info[infoSize-4:])}, nil
}

func (l legacyLayout) contents(socket int, table string) (digest [16]byte, err error) {
	entries, err := l.entries(socket, table)
	if err != nil {
		return digest, err
	}
	for at := 0; at+l.countersAt+16 <= len(entries); {
		clear(entries[at+l.countersAt : at+l.countersAt+16])
		next := int(binary.NativeEndian.Uint16(entries[at+l.nextAt:]))
		if next == 0 {
			return digest, errors.New("IPT_SO_GET_ENTRIES: an entry without a size")
		}
		at += next
	}
	sum := sha256.Sum256(entries)
	copy(digest[:], sum[:])
	return digest, nil
}

// entries reads the rules of a table as the kernel has them.
func (l legacyLayout) entries(socket int, table string) ([]byte, error) {
	stamp, err := l.info(socket, table)
	if err != nil {
		return nil, err
	}
	entries := make([]byte, entriesHeader+int(stamp.Size))
	copy(entries[:tableNameSize-1], table)
	binary.NativeEndian.PutUint32(entries[tableNameSize:], stamp.Size)
	if err := l.getsockopt(socket, getEntries, entries); err != nil {
		return nil, fmt.Errorf("IPT_SO_GET_ENTRIES: %w", err)
	}
	return entries[entriesHeader:], nil
}

func (l legacyLayout) getsockopt(socket, option int, buffer []byte) error {
	length := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(l.level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return errno
	}
	return nil
}
