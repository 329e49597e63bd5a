//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

const configurationDoc = "../../../docs/configuration.md"

// TestSettingsAreDocumented: the tables in docs/configuration.md are those of the code. With -update they are written.
func TestSettingsAreDocumented(t *testing.T) {
	before, err := os.ReadFile(configurationDoc)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]func() string{"settings": settingsDoc, "felix used": felixUsedDoc, "felix reported": felixReportedDoc,
		"felix unused": felixUnusedDoc}
	after := string(before)
	for name, table := range tables {
		block := regexp.MustCompile(`(?s)<!-- ` + name + ` -->\n.*?<!-- end -->`)
		if n := len(block.FindAllString(after, -1)); n != 1 {
			t.Errorf("%d tables %q, want 1", n, name)
		}
		after = block.ReplaceAllLiteralString(after, "<!-- "+name+" -->\n"+table()+"<!-- end -->")
	}
	if *update {
		if err := os.WriteFile(configurationDoc, []byte(after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(before), after); diff != "" {
		t.Errorf("go test ./cmd/agent/cli -run Documented -update writes this (-documented +settings):\n%s", diff)
	}
}

// quoted are words in code style.
func quoted(words ...string) string {
	var parts []string
	for _, w := range words {
		if w != "" {
			parts = append(parts, "`"+w+"`")
		}
	}
	return strings.Join(parts, ", ")
}

func settingsDoc() string {
	var b strings.Builder
	b.WriteString("| setting | default | environment | FelixConfiguration | a change takes |\n|---|---|---|---|---|\n")
	for _, s := range config.Settings() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, quoted(s.Default()), quoted(append([]string{s.Environment()}, s.Others...)...), quoted(s.Felix...), s.Effect)
	}
	return b.String()
}

func felixUsedDoc() string {
	var b strings.Builder
	b.WriteString("| field | setting | |\n|---|---|---|\n")
	for _, f := range config.FelixFields() {
		if len(f.Settings) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Field, quoted(f.Settings...), f.Why)
		}
	}
	return b.String()
}

func felixReportedDoc() string {
	var b strings.Builder
	b.WriteString("| field | |\n|---|---|\n")
	for _, f := range config.FelixFields() {
		if f.Reported {
			fmt.Fprintf(&b, "| `%s` | %s |\n", f.Field, f.Why)
		}
	}
	return b.String()
}

func felixUnusedDoc() string {
	var reasons []string
	fields := map[string][]string{}
	for _, f := range config.FelixFields() {
		if len(f.Settings) > 0 || f.Reported {
			continue
		}
		if fields[f.Why] == nil {
			reasons = append(reasons, f.Why)
		}
		fields[f.Why] = append(fields[f.Why], f.Field)
	}
	slices.Sort(reasons)
	var b strings.Builder
	b.WriteString("| fields | why |\n|---|---|\n")
	for _, why := range reasons {
		fmt.Fprintf(&b, "| %s | %s |\n", quoted(fields[why]...), why)
	}
	return b.String()
}

const felixManifest = `
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {logSeverityScreen: Warning, defaultEndpointToHostAction: Drop, vxlanPort: 99999}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: node.n1}
spec: {logSeverityScreen: Debug}
`

// TestConfigWithoutAnAgent evaluates every layer there is: directory, file, environment and flags.
func TestConfigWithoutAnAgent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "margay.yaml")
	manifests := filepath.Join(dir, "manifests")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "event-rate: 5\nlog-level: error\n")
	write(filepath.Join(manifests, "felix.yaml"), felixManifest)
	t.Setenv("MARGAY_EVENT_RATE", "6")
	t.Setenv("MARGAY_EVENT_RATES", "6")
	var out, errs bytes.Buffer
	args := []string{"config", "-o", "json", "--config-file", file, "--dir", manifests, "--node", "n1", "--socket", filepath.Join(dir, "none.sock")}
	if code := execute(t.Context(), args, &out, &errs); code != 0 {
		t.Fatalf("exit status %d: %s", code, errs.String())
	}
	var rows []inspect.ConfigRow
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	want := map[string]inspect.ConfigRow{
		"event-rate": {Name: "event-rate", Value: "6", Source: "environment variable MARGAY_EVENT_RATE", Effect: "reopen",
			Overridden: []inspect.ConfigValue{{Value: "5", Source: file + " line 1"}, {Value: "1000", Source: "built-in default"}}},
		"log-level": {Name: "log-level", Value: "error", Source: file + " line 2", Effect: "live", Overridden: []inspect.ConfigValue{
			{Value: "debug", Source: "FelixConfiguration node.n1, field logSeverityScreen"},
			{Value: "warn", Source: "FelixConfiguration default, field logSeverityScreen"}, {Value: "info", Source: "built-in default"}}},
		"node":  {Name: "node", Value: "n1", Source: "--node", Effect: "restart", Overridden: rows[slices.IndexFunc(rows, func(r inspect.ConfigRow) bool { return r.Name == "node" })].Overridden},
		"pprof": {Name: "pprof", Value: "false", Source: "built-in default", Effect: "restart", Overridden: []inspect.ConfigValue{}},
	}
	if len(rows) != len(config.Settings()) {
		t.Errorf("%d rows for %d settings", len(rows), len(config.Settings()))
	}
	for _, r := range rows {
		if w, ok := want[r.Name]; ok {
			if diff := cmp.Diff(w, r); diff != "" {
				t.Errorf("%s (-want +got):\n%s", r.Name, diff)
			}
		}
	}
	for _, line := range []string{
		"margay: warning: environment variable MARGAY_EVENT_RATES: there is no setting of that name; is MARGAY_EVENT_RATE meant?\n",
		`margay: warning: FelixConfiguration default, field vxlanPort "99999": want a port, 0 to 65535; vxlan-port stays 4789` + "\n",
	} {
		if !strings.Contains(errs.String(), line) {
			t.Errorf("%q is not in\n%s", line, errs.String())
		}
	}
}

func TestConfigSaysWhatIsOverridden(t *testing.T) {
	run := func(args ...string) string {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), append([]string{"config", "--local", "--event-rate", "7"}, args...), &out, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("exit status %d: %s", code, errs.String())
		}
		return out.String()
	}
	if got := run(); !regexp.MustCompile(`(?m)^event-rate +7 +--event-rate$`).MatchString(got) || strings.Contains(got, "overridden") {
		t.Error(got)
	}
	if got := run("--all"); !regexp.MustCompile(`(?m)^event-rate +7 +--event-rate\n  overridden +1000 +built-in default$`).MatchString(got) {
		t.Error(got)
	}
}

func TestConfigListsTheFieldsOfFelix(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"config", "--felix"}, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	for _, line := range []string{`(?m)^vxlanPort +vxlan-port +-$`, `(?m)^healthPort +not used +Felix' own port`} {
		if !regexp.MustCompile(line).MatchString(out.String()) {
			t.Errorf("%s is not in\n%s", line, out.String())
		}
	}
}

// TestTheFileThatIsNamedMustBeThere, and only that one.
func TestTheFileThatIsNamedMustBeThere(t *testing.T) {
	var out, errs bytes.Buffer
	none := filepath.Join(t.TempDir(), "none.yaml")
	if code := execute(t.Context(), []string{"config", "--local", "--config-file", none}, &out, &errs); code != 2 ||
		!strings.Contains(errs.String(), "file of settings: open "+none) {
		t.Errorf("exit status %d: %s", code, errs.String())
	}
}
