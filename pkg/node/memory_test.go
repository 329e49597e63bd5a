package node

import (
	"math"
	"strings"
	"testing"
)

func TestAMemoryLimitIsRefusedOrWarnedOf(t *testing.T) {
	for limit, want := range map[uint64]string{
		32 << 20: "refuse", 96 << 20: "refuse", 128<<20 - 1: "refuse", 128 << 20: "warn", 147 << 20: "warn",
		148 << 20: "", 256 << 20: "", math.MaxUint64: "",
	} {
		warning, err := judgeMemory(84<<20, limit, "/sys/fs/cgroup/memory.max")
		got := ""
		text := warning
		if err != nil {
			got, text = "refuse", err.Error()
		} else if warning != "" {
			got = "warn"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", mib(limit), got, want)
		}
		if got == "" {
			continue
		}
		for _, part := range []string{mib(limit), "/sys/fs/cgroup/memory.max", "84 MiB", "148 MiB"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q does not say %q", mib(limit), text, part)
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%q is more than one line", text)
		}
	}
}

// TestARestartLeavesGoItsMemoryLimit: an agent gets the limit that the one got which made the maps, in the same process or in a
// container before. Under a limit that is too low for that the maps are charged to another pod.
func TestARestartLeavesGoItsMemoryLimit(t *testing.T) {
	const mb = 1 << 20
	all := mapsMemory{Empty: 105 * mb, Full: 700 * mb}
	for _, limit := range []uint64{149 * mb, 170 * mb, 400 * mb, 2000 * mb, math.MaxUint64} {
		first := chargedMaps(all, all, limit)
		for what, missing := range map[string]mapsMemory{"none": {}, "some": {Empty: 1 * mb, Full: 50 * mb}} {
			again := chargedMaps(all, missing, limit)
			if now, before := softLimit(again.Empty, again.Full, limit), softLimit(first.Empty, first.Full, limit); again != first || now != before {
				t.Errorf("limit %s, %s of the maps missing: Go may take %s, the agent that made them %s", mib(limit), what, mib(now), mib(before))
			}
			if _, err := judgeMemory(again.Empty, limit, "f"); err != nil {
				t.Errorf("limit %s, %s of the maps missing: %v", mib(limit), what, err)
			}
		}
	}
	if maps := chargedMaps(all, mapsMemory{}, 148*mb); maps != (mapsMemory{}) {
		t.Errorf("maps of %s count, which no agent has made under this limit", mib(maps.Empty))
	}
}

func TestAnAgentThatMakesNoMapsNeedsLess(t *testing.T) {
	if _, err := judgeMemory(0, 44<<20, "f"); err != nil {
		t.Error(err)
	}
}

func TestGoKeepsWithinTheMemoryLimit(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ empty, full, limit, want uint64 }{
		{80 * mb, 300 * mb, 1300 * mb, 900 * mb},         // what full maps leave
		{80 * mb, 300 * mb, 310 * mb, 115 * mb / 10 * 9}, // that is next to nothing: half of what is free now
		{80 * mb, 300 * mb, 200 * mb, 64 * mb / 10 * 9},  // what is usual is more
		{80 * mb, 300 * mb, 120 * mb, 36 * mb},           // and is not free: what is
		{0, 0, 100 * mb, 90 * mb},                        // the maps are another agent's
	} {
		if got := softLimit(c.empty, c.full, c.limit); got/10 != c.want/10 {
			t.Errorf("maps of %s, full %s, limit %s: Go may take %s, want %s", mib(c.empty), mib(c.full), mib(c.limit), mib(got), mib(c.want))
		}
	}
}
