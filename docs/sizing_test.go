package docs

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// amount reads a number as the documents write it, with MiB or without a unit.
func amount(t *testing.T, text string) float64 {
	t.Helper()
	number, mib := strings.CutSuffix(text, " MiB")
	n, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	if mib {
		n *= 1 << 20
	}
	return n
}

// sizingTable are the terms of the formula in docs/sizing.md, in bytes, by what they are for and where they are.
func sizingTable(t *testing.T) map[string]float64 {
	t.Helper()
	terms := map[string]float64{}
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([\d,]+(?: MiB)?) \| ([^|]+) \|$`)
	for _, m := range row.FindAllStringSubmatch(documents(t)["docs/sizing.md"], -1) {
		terms[m[1]+": "+m[3]] = amount(t, m[2])
	}
	return terms
}

// kernel is what the maps take with these sizes on this many CPUs.
func kernel(t *testing.T, cpus int, sizes map[string]uint32) bpfmaps.Memory {
	t.Helper()
	memory, _, err := bpfmaps.NeededMemory(bpfmaps.Options{BPFFS: t.TempDir(), MaxEntries: sizes}, cpus)
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// TestSizingIsWhatTheMapsTake: the kernel's part of the formula is that of the maps as they are.
func TestSizingIsWhatTheMapsTake(t *testing.T) {
	terms := sizingTable(t)
	one, two := kernel(t, 1, nil).Empty, kernel(t, 2, nil).Empty
	const mib = 1 << 20
	if got, want := terms["node: maps, empty"], float64(2*one-two); got < want || got > want+8*mib {
		t.Errorf("docs/sizing.md says %.0f MiB of empty maps, they take %.1f", got/mib, want/mib)
	}
	if got, want := terms["CPU that the kernel may have: counts of rules"], float64(two-one); math.Abs(got-want) > mib/100 {
		t.Errorf("docs/sizing.md says %.2f MiB for each CPU, it is %.2f", got/mib, want/mib)
	}
	const n = 1 << 16
	found := 0
	for what, got := range terms {
		_, name, ok := strings.Cut(what, ": `")
		if !ok {
			continue
		}
		found++
		name = strings.TrimSuffix(name, "`")
		small, large := kernel(t, 1, map[string]uint32{name: n}), kernel(t, 1, map[string]uint32{name: 2 * n})
		want := float64(large.Full-large.Empty-small.Full+small.Empty) / n
		if got != want {
			t.Errorf("docs/sizing.md says %s takes %.0f bytes, it is %.0f", what, got, want)
		}
	}
	if found != 9 {
		t.Errorf("docs/sizing.md names %d maps, want 9", found)
	}
}

// agentMemory is the agent's part of the formula.
func agentMemory(terms map[string]float64, local, all float64) float64 {
	return terms["node: the agent: code, buffers, the Go runtime"] + local*terms["pod on the node: agent and tables of short policies"] +
		all*terms["pod of the cluster: agent"]
}

// TestSizingCoversWhatWasMeasured: the agent's part of the formula is at least what was measured of anonymous memory, and
// not far above it.
func TestSizingCoversWhatWasMeasured(t *testing.T) {
	terms := sizingTable(t)
	text, err := os.ReadFile(filepath.Join(root, "bench/results/cluster.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, costs, _ := strings.Cut(string(text), "What the agent costs")
	costs, _, _ = strings.Cut(costs, "Bytes per remote pod")
	rows := 0
	for _, line := range strings.Split(costs, "\n") {
		f := strings.Fields(line)
		if len(f) < 8 || strings.Trim(f[0], "0123456789") != "" {
			continue
		}
		rows++
		local, remote, measured := amount(t, f[0]), amount(t, f[1]), amount(t, f[5])*1e6
		if got := agentMemory(terms, local, local+remote); got < measured || got > 2.5*measured {
			t.Errorf("%s local and %s remote pods: the formula says %.0f MB, measured were %.1f", f[0], f[1], got/1e6, measured/1e6)
		}
	}
	if rows != 6 {
		t.Errorf("%d rows in cluster.txt, want 6", rows)
	}
}

// TestSizingExamplesFollowTheFormula: each example is the formula's sum, rounded up to 10 MiB.
func TestSizingExamplesFollowTheFormula(t *testing.T) {
	terms := sizingTable(t)
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+ MiB) \|$`)
	rows := row.FindAllStringSubmatch(documents(t)["docs/sizing.md"], -1)
	for _, m := range rows {
		cpus, local, all, flows := amount(t, m[1]), amount(t, m[2]), amount(t, m[3]), amount(t, m[4])
		sum := terms["node: maps, empty"] + cpus*terms["CPU that the kernel may have: counts of rules"] + agentMemory(terms, local, all) +
			all*terms["IPv4 address of a pod or node: `ip4_host`"] + flows*terms["open IPv4 flow: `ct4`"]
		const step = 10 << 20
		want := (int(sum) + step - 1) / step * step
		if got := int(amount(t, m[5])); got != want {
			t.Errorf("docs/sizing.md, %s CPUs: %d MiB, the formula says %d", m[1], got>>20, want>>20)
		}
	}
	if len(rows) < 3 {
		t.Errorf("%d examples, want 3", len(rows))
	}
}
