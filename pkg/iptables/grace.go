package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
const membarrierGlobal = 1

// graceless is how long Grace waits where the kernel cannot say when all packets have passed. A packet is in the tables for
// microseconds.
const graceless = 100 * time.Millisecond

// Grace returns when every packet that was in tables or sets at the time of the call has left them, which is after milliseconds. A
// packet that enters after the call sees all writes made before the call. The error is that of ctx, or of the system call.
func Grace(ctx context.Context) error {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	if errno == 0 {
		return nil
	}
	if !errors.Is(errno, unix.EINVAL) && !errors.Is(errno, unix.ENOSYS) && !errors.Is(errno, unix.EPERM) {
		return errno
	}
	pause := time.NewTimer(graceless) // nohz_full, or a kernel or sandbox without the call
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-pause.C:
		return nil
	}
}

// Awaits reports whether Apply returns only when no packet is left in the tables as they were before: iptables-legacy since
// Linux 4.15 (80055dab5de0, "make xt_replace_table wait until old rules are not used anymore"). Otherwise the caller needs Grace.
func (t *Tools) Awaits() bool {
	var u unix.Utsname
	if t.Backend != Legacy || unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 4 || major == 4 && minor >= 15)
}
