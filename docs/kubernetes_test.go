package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	block     = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	continued = regexp.MustCompile(`\\\n *`)
	daemonset = regexp.MustCompile(`\b(?:ds|daemonset)/([\w-]+)`)
	selected  = regexp.MustCompile(` -l ([\w./-]+)=([\w-]+)`)
	set       = regexp.MustCompile(`--set ([\w.-]+)=`)
	kustomize = regexp.MustCompile(`kubectl \w+ -k (\S+)`)
	published = regexp.MustCompile(`raw\.githubusercontent\.com/margay-project/margay|helm (?:install|upgrade) \S+ (?:oci|https):`)
	chart     = regexp.MustCompile(`helm (?:install|upgrade) \S+ (\S+)`)
)

// clusterCommands are the lines in blocks of a document that run kubectl or helm.
func clusterCommands(text string) []string {
	var commands []string
	for _, b := range block.FindAllString(text, -1) {
		for line := range strings.Lines(continued.ReplaceAllString(b, " ")) {
			if strings.Contains(line, "kubectl ") || strings.Contains(line, "helm ") {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
	}
	return commands
}

// manifests is the text of all manifests below deploy.
func manifests(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		all.WriteString("\n---\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// isValue reports whether the chart has a value of that path.
func isValue(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/helm/margay/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	parents, last := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parents, last = path[:i], path[i+1:]
	}
	var values map[string]yamlNode
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(parents, ".") {
		if name == "" {
			continue
		}
		node, ok := values[name]
		if !ok {
			return false
		}
		values = nil
		if err := yaml.Unmarshal(node, &values); err != nil {
			t.Fatal(err)
		}
	}
	if parents == "settings" { // values.yaml has only some, the schema all of them
		schema, err := os.ReadFile(filepath.Join(root, "deploy/helm/margay/values.schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(schema), `"`+last+`": {`)
	}
	_, ok := values[last]
	return ok
}

// yamlNode is a value that is read later.
type yamlNode []byte

// UnmarshalJSON keeps the text.
func (n *yamlNode) UnmarshalJSON(text []byte) error {
	*n = append(yamlNode{}, text...)
	return nil
}

// isThere reports whether the repository has a file.
func isThere(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

// ownKustomization reports whether a document has the reader write the kustomization of a directory: `kubectl -k` has no image to pull
// with one of the repository, as long as no image is published.
func ownKustomization(text, dir string) bool {
	file := "# kustomization.yaml\n"
	if dir != "." {
		file = "# " + dir + "/kustomization.yaml\n"
	}
	return strings.Contains(text, file) || dir == "." && strings.Contains(text, "installation.md")
}

// keepsValues reports whether a helm upgrade has the values of the release, and the defaults of the chart that it is given: with
// --reuse-values it has those of the chart before, so that is for changes of settings.
func keepsValues(line string) bool {
	for _, option := range []string{" --values ", " --reset-then-reuse-values"} {
		if strings.Contains(line, option) {
			return true
		}
	}
	return strings.Contains(line, " --reuse-values ") && !strings.Contains(line, "cleanup") && !strings.Contains(line, "image")
}

// isDaemonSet reports whether a manifest has a DaemonSet of that name, but for a suffix that a kustomization adds.
func isDaemonSet(deployed, name string) bool {
	names := []string{name}
	for _, m := range regexp.MustCompile(`(?m)^nameSuffix: (\S+)$`).FindAllStringSubmatch(deployed, -1) {
		if short, ok := strings.CutSuffix(name, m[1]); ok {
			names = append(names, short)
		}
	}
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(deployed, "kind: DaemonSet\nmetadata:\n  name: "+n+"\n")
	})
}

// TestClusterCommandsReferToWhatIsThere: manifests, charts, values, DaemonSets and labels that documents name in lines of
// kubectl and helm are those of deploy.
func TestClusterCommandsReferToWhatIsThere(t *testing.T) {
	all, deployed := 0, manifests(t)
	for name, text := range documents(t) {
		for _, line := range clusterCommands(text) {
			all++
			check := func(ok bool, what string) {
				if !ok {
					t.Errorf("%s: %s: there is no %s", name, line, what)
				}
			}
			for _, m := range kustomize.FindAllStringSubmatch(line, -1) {
				check(ownKustomization(text, m[1]), "kustomization of the user's own in "+m[1])
			}
			check(!published.MatchString(line), "published image or chart")
			if strings.HasPrefix(line, "helm install ") {
				check(strings.Contains(line, " --set image.repository="), "image without --set image.repository")
			}
			if strings.HasPrefix(line, "helm upgrade ") {
				check(keepsValues(line), "upgrade that keeps the values and has the new chart's defaults")
			}
			for _, m := range chart.FindAllStringSubmatch(line, -1) {
				check(m[1] == "CHART" || isThere(m[1]+"/Chart.yaml"), "chart "+m[1])
			}
			for _, m := range set.FindAllStringSubmatch(line, -1) {
				check(isValue(t, m[1]), "value "+m[1])
			}
			for _, m := range daemonset.FindAllStringSubmatch(line, -1) {
				check(isDaemonSet(deployed, m[1]), "DaemonSet "+m[1])
			}
			for _, m := range selected.FindAllStringSubmatch(line, -1) {
				check(strings.Contains(deployed, m[1]+": "+m[2]+"\n"), "label "+m[1]+"="+m[2])
			}
		}
	}
	if all < 30 {
		t.Errorf("%d lines of kubectl and helm were found, want at least 30", all)
	}
}
