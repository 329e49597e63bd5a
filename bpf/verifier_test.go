package bpf_test

import (
	"errors"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// Instructions the verifier may walk through, per program: 10 % over what Linux 6.18 needs today. Growth past it wants
// a reason and a new number here.
var budget = map[string]int{
	bpf.MargayProgFromPod:   74000,
	bpf.MargayProgToPod:     48000,
	bpf.MargayProgJudge:     46000,
	bpf.MargayProgGuardOut:  150,
	bpf.MargayProgSweepOpen: 550,
	bpf.MargayProgSweepHalf: 550,
	bpf.MargayProgEmpty:     10,
}

// TestVerifierAcceptsEveryVariant loads every program in every configuration that changes which branches are alive.
func TestVerifierAcceptsEveryVariant(t *testing.T) {
	testutil.Privileged(t)
	variants := map[string]bpf.Config{
		"default": {Shortcut: 1, OpenQuota: 1},
		"strict":  {Shortcut: 1, Strict: 1, HostDrop: 1},
		"plain":   {Keep: 1},
	}
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			cfg.MarkSeen, cfg.MarkJudge, cfg.MarkOwn = 1<<16, 1<<17, 1<<18
			cfg.Hz, cfg.EventRate, cfg.PrefixLen = 250, 1000, 4
			copy(cfg.Prefix[:], "cali")
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
		t.Logf("program %s: %d instructions verified", name, n)
		if n > budget[name] {
			t.Errorf("program %s: %d instructions verified, more than the %d allowed", name, n, budget[name])
		}
	}
}
