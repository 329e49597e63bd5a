package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/config"
)

// thousands writes a number as the documents do.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// defined is a number that a file of C or Go defines by name.
func defined(t *testing.T, file, pattern string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no %s", file, pattern)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLimitsAreThoseOfTheCode: the numbers in the table of limits are those that hold.
func TestLimitsAreThoseOfTheCode(t *testing.T) {
	spec, err := bpf.LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	entries := func(name string) int {
		t.Helper()
		m := spec.Maps[name]
		if m == nil {
			t.Fatalf("there is no map %s", name)
		}
		return int(m.MaxEntries)
	}
	one, space, node, assured := plan.PerDirection, plan.PerNamespace, plan.PerNode, plan.Assured
	const mib = 1 << 20
	flows, shares := entries("ct4"), defined(t, "bpf/lib/types_flows.h", `SHARES = (\d+)`) // divided as by bpfmaps.divide
	want := map[string][]int{
		"entries of match tables":      {one.Rules, space.Rules, node.Rules},
		"sets of addresses":            {one.Sets, space.Sets, node.Sets},
		"CIDR lists that one":          {one.Overlap, space.Overlap, node.Overlap},
		"prefixes in CIDR lists":       {one.Prefixes, space.Prefixes, node.Prefixes},
		"addresses that the selectors": {calc.MaxFound, calc.MaxFoundPerItem},
		"different selectors":          {calc.MaxReferences},
		"prefixes that the selectors":  {calc.MaxNetsFound},
		"external and load-balancer":   {calc.MaxExternal},
		"backends of Services":         {calc.MaxBackends},
		"ports of a Service":           {calc.MaxServicePorts},
		"MiB of tables in the kernel":  {table.MaxTableBytes / mib, space.Bytes / mib, node.Bytes / mib},
		"of those rows, assured":       {assured.Rules, assured.Sets, assured.Overlap, assured.Prefixes, assured.Bytes / mib},
		"open flows":                   {flows / 4 / shares, int(config.Defaults().FlowQuota), flows / 8 * 3},
		"half-open flows":              {defined(t, "bpf/lib/types_flows.h", `HALF_SHARE = (\d+)`), defined(t, "bpf/lib/types_flows.h", `HALF_COMMON = (\d+)`)},
		"datagrams to a pod":           {bpf.FragSets * bpf.FragWays},
		"datagrams of a pod":           {bpf.FragSets * bpf.FragWays},
		"KiB of the kernel's memory":   {int(bpf.FragOwnBytes) >> 10, int(bpf.FragCommonBytes) >> 10},
		"rules of a policy":            {table.MaxWalk},
		"ARP and discovery messages":   {defined(t, "bpf/lib/neighbour.h", `NEIGHBOUR_BURST (\d+)`), 1_000_000_000 / defined(t, "bpf/lib/neighbour.h", `NEIGHBOUR_INTERVAL_NS (\d+)ULL`)},
		"IPv6 extension headers":       {defined(t, "bpf/lib/parse.h", `#define MAX_EXT_HEADERS (\d+)`)},
		"events of verdicts":           {int(config.Defaults().EventRate)},
	}
	number := regexp.MustCompile(`\d+(?:,\d{3})*`)
	for _, line := range strings.Split(documents(t)["docs/security.md"], "\n") {
		for label, numbers := range want {
			cells, ok := strings.CutPrefix(line, "| "+label)
			if !ok {
				continue
			}
			var texts []string
			for _, n := range numbers {
				texts = append(texts, thousands(n))
			}
			parts := strings.Split(cells, "|")
			got := number.FindAllString(strings.Join(parts[1:len(parts)-2], "|"), -1)
			if fmt.Sprint(got) != fmt.Sprint(texts) {
				t.Errorf("docs/security.md says of %s%s: %v, and the code %v", label, parts[0], got, texts)
			}
			delete(want, label)
		}
	}
	for label := range want {
		t.Errorf("docs/security.md has no row %q", label)
	}
}
