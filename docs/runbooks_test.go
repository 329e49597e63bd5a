package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const runbooks = "https://github.com/margay-project/margay/blob/main/docs/runbooks.md#"

// TestEveryAlertHasARunbook: each alert leads to a part of runbooks.md, each part belongs to an alert, and metrics that
// the runbooks name exist.
func TestEveryAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := documents(t)
	parts := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(all["docs/runbooks.md"], -1) {
		parts[m[1]] = true
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if got, want := rule.Annotations["runbook_url"], runbooks+strings.ToLower(rule.Alert); got != want {
				t.Errorf("alert %s has the runbook %q, want %q", rule.Alert, got, want)
			}
			if !parts[rule.Alert] {
				t.Errorf("docs/runbooks.md has no part %s", rule.Alert)
			}
			delete(parts, rule.Alert)
		}
	}
	for name := range parts {
		t.Errorf("docs/runbooks.md has a part %s, and there is no such alert", name)
	}
	for _, metric := range regexp.MustCompile("`(margay_[a-z_]+)`").FindAllStringSubmatch(all["docs/runbooks.md"], -1) {
		if !strings.Contains(all["docs/metrics.md"], metric[1]) {
			t.Errorf("docs/runbooks.md names the metric %s, which docs/metrics.md does not", metric[1])
		}
	}
}
