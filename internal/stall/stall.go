// Package stall stops processes for random moments, as a machine with too much to do does. A test that depends on how soon a
// process goes on fails under it much more often than without.
package stall

import (
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// Until stops the process and has it go on, again and again, until done is closed; then the process goes on. It runs for about
// half of the time. Most stops are of some milliseconds, few of up to two seconds.
func Until(done <-chan struct{}, process *os.Process) {
	for {
		if !pause(done, time.Duration(rand.IntN(60))*time.Millisecond) {
			return
		}
		if process.Signal(syscall.SIGSTOP) != nil { // it has ended
			return
		}
		going := pause(done, length())
		if process.Signal(syscall.SIGCONT) != nil || !going {
			return
		}
	}
}

// length is how long one stop lasts.
func length() time.Duration {
	switch n := rand.IntN(100); {
	case n < 80:
		return time.Duration(1+rand.IntN(20)) * time.Millisecond
	case n < 98:
		return time.Duration(50+rand.IntN(250)) * time.Millisecond
	default:
		return time.Duration(500+rand.IntN(1500)) * time.Millisecond
	}
}

// pause waits, and reports whether done is still open.
func pause(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
		return true
	}
}
