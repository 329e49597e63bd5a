package attach

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// The kernels these tests run on are new enough: everything must be found, and mounting leaves nothing behind.
func TestProbeFindsEverythingOnASupportedKernel(t *testing.T) {
	testutil.Privileged(t)
	dir := t.TempDir()
	report := Probe(dir)
	for _, c := range report.Checks {
		t.Log(c)
		if !c.OK() {
			t.Error(c)
		}
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Kernel == "unknown" || len(report.Checks) < 18 {
		t.Errorf("%+v", report)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("left in %s: %v (%v)", dir, list, err)
	}
}

// TestAReadOnlyBPFFileSystemIsMissing: nothing can be pinned there.
func TestAReadOnlyBPFFileSystemIsMissing(t *testing.T) {
	testutil.Privileged(t)
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := probeBPFFS(dir); err == nil || !strings.Contains(err.Error(), "mounted read-only") || !strings.Contains(err.Error(), "remount,rw "+dir) {
		t.Errorf("%v", err)
	}
}

// TestADirectoryThatCannotBeMadeIsMissing: an agent that starts has to make it, to mount the BPF file system there.
func TestADirectoryThatCannotBeMadeIsMissing(t *testing.T) {
	testutil.Privileged(t)
	readOnly := t.TempDir()
	if err := unix.Mount("tmpfs", readOnly, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(readOnly, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(readOnly, "some", "bpf"): readOnly + ": read-only file system",
		file:                                   "is a file",
		filepath.Join(file, "bpf"):             "is a file",
		readOnly:                               "", // is there
		filepath.Join(t.TempDir(), "a", "b"):   "",
	} {
		err := probeBPFFS(dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mount -t bpf bpf "+dir)) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

func TestProbeSeesWhatIsMissing(t *testing.T) {
	testutil.Privileged(t)
	for name, try := range map[string]func() error{
		"map type":        probeMap(ebpf.MapSpec{Type: ebpf.MapType(200), KeySize: 4, ValueSize: 4, MaxEntries: 1}),
		"kernel function": probeKernelFunction("bpf_no_such_function"),
		"helper":          probeHelper("no such helper"),
	} {
		if try() == nil {
			t.Errorf("%s: found what does not exist", name)
		}
	}
}

func TestAReportNamesWhatIsMissingAndWhatForTheRest(t *testing.T) {
	report := Report{Kernel: "5.15", Checks: []Check{
		{Name: "LPM tries", Since: "4.11", Needed: true},
		{Name: "TCX links", Since: "6.6", Needed: true, Err: ebpf.ErrNotSupported},
		{Name: "bpf system call", Since: "4.18", Needed: true, Err: unix.EPERM},
		{Name: "BPF JIT compiler", Needed: true, Err: jitError("0\n")},
		{Name: "helper bpf_redirect_peer", Since: "5.10", For: "same-node shortcut", Err: ebpf.ErrNotSupported},
	}}
	text := report.Err().Error()
	if strings.Contains(text, "\n") {
		t.Errorf("more than one line: %q", text)
	}
	for _, want := range []string{"kernel 5.15", "TCX links: missing (Linux 6.6)", "bpf system call: not permitted",
		"the BPF JIT is off: set net.core.bpf_jit_enable=1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	for _, not := range []string{"LPM", "redirect_peer"} {
		if strings.Contains(text, not) {
			t.Errorf("%q says %q", text, not)
		}
	}
	if line := report.Checks[4].String(); !strings.Contains(line, "without it no same-node shortcut") {
		t.Errorf("%q", line)
	}
	if err := (Report{Checks: []Check{{Needed: true}, {Err: errors.New("x")}}}).Err(); err != nil {
		t.Errorf("something not needed is missing: %v", err)
	}
}

func TestOnlyAJITThatIsOffIsAProblem(t *testing.T) {
	for setting, off := range map[string]bool{"0\n": true, "1\n": false, "2\n": false} {
		if err := jitError(setting); (err != nil) != off {
			t.Errorf("bpf_jit_enable %q: %v", setting, err)
		}
	}
}

func TestSeveralErrorsAreOneLine(t *testing.T) {
	c := Check{Name: "x", Needed: true, Err: errors.Join(errors.New("a"), errors.New("b"))}
	if got := c.Detail(); got != "a; b" {
		t.Errorf("%q", got)
	}
}
