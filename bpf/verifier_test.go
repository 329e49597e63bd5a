package bpf_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// budget is how many instructions the verifier may walk through, per program: 10 % over what Linux 6.18 needs today.
// Growth past it wants a reason and a new number here. Other kernels follow by allowances.
var budget = map[string]int{
	bpf.MargayProgFromPod: 60500,
	bpf.MargayProgToPod:   48500,
	bpf.MargayProgGuard:   170,
	bpf.MargayProgJudge:   48500,
	// 7.3.4 walks the function of a bpf_loop about twice as often as 6.18: 1,013 and 397 instructions, 421 and 224 there. So do some
	// builds of 6.18.44: 775 and 421.
	bpf.MargayProgSweep4:   850,
	bpf.MargayProgSweep6:   850,
	bpf.MargayProgRestamp4: 480,
	bpf.MargayProgRestamp6: 480,
	bpf.MargayProgAsk:      17500,
	bpf.MargayProgEmpty:    10,
}

// allowances are what the verifiers of other kernels may need, in percent of budget: of each series the last one that
// is not newer than the kernel applies. `make kernels` prints the counts of the kernels it boots.
var allowances = []struct {
	major, minor, percent int
}{
	{0, 0, 100},
	{7, 0, 125}, // 7.3.4: from_pod 115 % of 6.18, the others up to 116 %
}

// allowance is the percentage of budget for a kernel release as uname says it.
func allowance(release string) (int, error) {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("parse kernel release %q: %w", release, err)
	}
	percent := 0
	for _, a := range allowances {
		if major > a.major || major == a.major && minor >= a.minor {
			percent = a.percent
		}
	}
	return percent, nil
}

func TestAllowanceOfAKernelIsThatOfItsSeries(t *testing.T) {
	for release, want := range map[string]int{
		"6.12.95+deb12-cloud-amd64": 100, "6.18.44-fc-v669": 100, "7.0.4+deb13": 125, "7.3.4+deb13-cloud-amd64": 125, "10.1": 125,
	} {
		if got, err := allowance(release); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", release, got, err, want)
		}
	}
	if _, err := allowance("unknown"); err == nil {
		t.Error("a release that is none has an allowance")
	}
}

// TestVerifierAcceptsEveryVariant loads every program in every configuration that changes which branches are alive.
func TestVerifierAcceptsEveryVariant(t *testing.T) {
	testutil.Privileged(t)
	variants := map[string]bpf.Config{
		"default": {FlowQuota: 1},
		"strict":  {StrictMidFlow: 1, HostDrop: 1},
		"plain":   {NoShortcut: 1, AllowEncap: 1, KeepExisting: 1},
	}
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			cfg.MarkSeen, cfg.MarkJudge, cfg.MarkOwn = 1<<16, 1<<17, 1<<18
			cfg.Hz, cfg.EventRate, cfg.InterfacePrefixLen = 250, 1000, 4
			copy(cfg.InterfacePrefix[:], "cali")
			load(t, cfg)
		})
	}
}

func load(t *testing.T, cfg bpf.Config) {
	spec, err := bpf.LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		if m.Type != ebpf.ArrayOfMaps && m.MaxEntries > 4096 && m.Type != ebpf.Array && m.Type != ebpf.PerCPUArray {
			m.MaxEntries = 4096
		}
	}
	if err := spec.Variables[bpf.MargayVarCfg].Set(cfg); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer c.Close()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(uts.Release[:])
	percent, err := allowance(release)
	if err != nil {
		t.Fatal(err)
	}
	processed := regexp.MustCompile(`processed (\d+) insns`)
	for name, p := range c.Programs {
		m := processed.FindStringSubmatch(p.VerifierLog)
		if m == nil {
			t.Errorf("program %s: no instruction count in the verifier's log", name)
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		allowed := budget[name] * percent / 100
		t.Logf("program %s: %d instructions verified by %s, %d allowed", name, n, release, allowed)
		if n > allowed {
			t.Errorf("program %s: %d instructions verified by %s, more than the %d allowed", name, n, release, allowed)
		}
	}
}
