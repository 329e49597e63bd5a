package attach

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfroom"
)

// probeWith is set for processes that this test starts: how many file descriptors they may have.
const probeWith = "MARGAY_TEST_PROBE_WITH"

// A process that runs out of file descriptors while it probes must not take that for something that this kernel lacks: an agent would enforce
// with iptables from then on. What the library has found once stays for the life of a process, so each limit is tried in one of its own.
func TestAProbeWithoutFileDescriptorsSaysNothingOfTheKernel(t *testing.T) {
	testutil.Privileged(t)
	if limit := os.Getenv(probeWith); limit != "" {
		probeInChild(t, limit)
		return
	}
	short, enough := 0, false
	for _, limit := range []int{12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 512} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), probeWith+"="+strconv.Itoa(limit))
		out, err := child.CombinedOutput()
		if err != nil {
			t.Errorf("limit %d: %v\n%s", limit, err, out)
		}
		if strings.Contains(string(out), "too many open files") {
			short++
		}
		enough = strings.Contains(string(out), "nothing is missing")
	}
	if short < 3 || !enough {
		t.Errorf("%d limits were too low, the last one high enough: %t", short, enough)
	}
}

func probeInChild(t *testing.T, limit string) {
	n, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		t.Fatal(err)
	}
	r := Probe("/sys/fs/bpf")
	if r.KernelLacks() {
		t.Errorf("the kernel lacks something: %v; out of: %v", r.Err(), bpfroom.Lacks())
	}
	if err := r.Err(); err != nil {
		t.Log(err)
	} else {
		t.Log("nothing is missing")
	}
}
