package directory

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/margay-project/margay/pkg/validate"
)

// niceOfThread is how nice the calling thread is.
func niceOfThread() (int, error) {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, syscall.Gettid())
	return 20 - raw, err
}

// A large file is parsed by a thread of lower priority, so that changes in small files come first. No other thread is slowed down.
func TestALargeFileIsParsedWithLowerPriority(t *testing.T) {
	type nice struct {
		value int
		err   error
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := niceOfThread()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan nice, 1)
	a := aside{parse: func(string, []byte) []validate.Document {
		value, err := niceOfThread()
		seen <- nice{value, err}
		return nil
	}}
	a.add("large.yaml", nil, false)
	<-a.done
	if got := <-seen; got.err != nil || got.value != min(before+lessUrgent, nicest) {
		t.Errorf("the large file is parsed at nice %d (%v), want %d more than %d", got.value, got.err, lessUrgent, before)
	}
	if after, err := niceOfThread(); err != nil || after != before {
		t.Errorf("the thread that had it parsed is at nice %d (%v), want %d as before", after, err, before)
	}
}
