package directory

import (
	"runtime"
	"syscall"
)

const (
	// lessUrgent is by how much the thread of large files is nicer than the others: it gets a tenth of what they get.
	lessUrgent = 10
	nicest     = 19
)

// lowerPriority gives the calling goroutine a thread of its own with a lower priority. The thread ends with the goroutine, since
// a process may not raise the priority again.
func lowerPriority() {
	runtime.LockOSThread()
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, syscall.Gettid())
	if err != nil {
		return // the file is parsed all the same
	}
	nice := 20 - raw // the kernel returns it so, to have no negative results
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), min(nice+lessUrgent, nicest))
}
