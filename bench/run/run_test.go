//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/bench/page"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/internal/testutil"
)

// TestQuickRunMeasuresEverythingAndLeavesItsResults runs all parts with small numbers. What they check on the way (that
// policy is enforced, that packets took the path they were meant to, that nothing was lost) is checked here too; how
// long things take is not.
func TestQuickRunMeasuresEverythingAndLeavesItsResults(t *testing.T) {
	testutil.Privileged(t)
	for _, command := range []string{"iptables-restore", "iptables-legacy-restore", "iptables-nft-restore", "ipset"} {
		testutil.RequireCommand(t, command)
	}
	dir := t.TempDir()
	margay := filepath.Join(dir, "margay")
	if out, err := exec.Command("go", "build", "-o", margay, "github.com/margay-project/margay/cmd/agent").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	document := filepath.Join(dir, "page.md")
	if err := os.WriteFile(document, []byte(page.Begin+page.End), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := run(context.Background(), options{margay: margay, out: dir, page: document, quick: true}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if text, err := os.ReadFile(document); err != nil || !strings.Contains(string(text), "| P18 | request-response: iptables mode, nft,") {
		t.Errorf("the document is %s, %v", text, err)
	}
	var results []report.Result
	for _, name := range []string{"latest.json", "dataplanes.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var list []report.Result
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		results = append(results, list...)
	}
	required := map[string]int{}
	for _, r := range results {
		if r.Pass != nil {
			required[r.ID]++
		}
		if r.ID == "P12" && (r.Pass == nil || !*r.Pass) {
			t.Errorf("%s: %g %s", r.Config, r.Median, r.Unit)
		}
	}
	for _, id := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P9", "P11", "P12", "L2", "L3", "L4", "P16", "P17", "P18"} {
		if required[id] == 0 {
			t.Errorf("no result of %s is compared with what is required", id)
		}
	}
	for _, name := range []string{"latest.svg", "latest.txt", "dataplanes.svg", "dataplanes.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestRunRefusesAPartThatDoesNotExist(t *testing.T) {
	if _, err := run(context.Background(), options{only: "latency"}, &bytes.Buffer{}); err == nil {
		t.Error("no error")
	}
}

// TestAQuickRunSparesTheResults: it writes where it is told to, and nowhere else.
func TestAQuickRunSparesTheResults(t *testing.T) {
	for _, test := range []struct {
		args      []string
		out, page string
	}{{nil, "", ""}, {[]string{"-out", "x"}, "x", ""}, {[]string{"-out", "x", "-page", "y"}, "x", "y"}} {
		o, flags := options{}, flag.NewFlagSet("run", flag.ContinueOnError)
		flags.StringVar(&o.out, "out", "bench/results", "")
		flags.StringVar(&o.page, "page", "docs/benchmarks.md", "")
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		if o.spare(given(flags)); o.out != test.out || o.page != test.page {
			t.Errorf("%q: results go to %q and %q", test.args, o.out, o.page)
		}
	}
}
