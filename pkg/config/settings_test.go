package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// samples are two valid values of each setting, neither of them built in where there is a choice, as they are printed.
func samples(t *testing.T, s Setting) [2]string {
	t.Helper()
	particular := map[string][2]string{
		"datastore": {"kubernetes", "directory"}, "dataplane": {"bpf", "auto"}, "log-level": {"debug", "warn"},
		"health-address": {"127.0.0.1:82", "[::1]:80"}, "verify-every": {"1h", "0s"}, "metrics-address": {"off", ":81"}, "endpoint-status-dir": {"/a/endpoint-status", "off"},
		"interface-prefix": {"tap", "eni"}, "mark-mask": {"0xe0000000", "0x00000007"}, "iptables-mark-mask": {"0xfff00000", "0x0fff0000"},
		"masquerade-mark": {"0x00000001", "0x00000000"}, "iptables-backend": {"legacy", "nft"}, "map-size": {"a=1,b=2", "c=3"},
		"etcd-endpoints":       {"https://a:2379,https://b:2379", "http://[fd00::1]:2379"},
		"existing-connections": {"keep", "revoke"}, "default-endpoint-to-host-action": {"Drop", "Accept"}, "mid-flow": {"strict", "judge"},
		"pod-ips-from-annotations": {"calico", "aws"},
		"tunnel-ports":             {"1,70", "off"},
		"workload-source-spoofing": {"Any", "Disabled"},
	}
	if p, ok := particular[s.Name]; ok {
		return p
	}
	byType := map[string][2]string{"text": {"x", "y"}, "number": {"7", "8"}, "bool": {"true", "false"}, "duration": {"7s", "8m"}}
	p, ok := byType[s.Type]
	if !ok {
		t.Fatalf("%s: no samples of type %q", s.Name, s.Type)
	}
	return p
}

// felixSample is how a FelixConfiguration says that a setting has a sample; not ok: it cannot.
func felixSample(t *testing.T, s Setting, text string) (map[string]string, bool) {
	t.Helper()
	switch s.Name {
	case "log-level":
		return map[string]string{"logSeverityScreen": map[string]string{"debug": "Debug", "warn": "Warning"}[text]}, true
	case "default-endpoint-to-host-action":
		return map[string]string{"defaultEndpointToHostAction": map[string]string{"Drop": "DROP", "Accept": "Return"}[text]}, true
	case "allow-encap-from-workloads":
		return map[string]string{fieldVXLANAllowed: text, fieldIPIPAllowed: text}, true
	case "endpoint-status-dir":
		return map[string]string{"endpointStatusPathPrefix": strings.TrimSuffix(text, "/endpoint-status")}, text != "off"
	case "interface-prefix":
		return map[string]string{"interfacePrefix": text}, true
	case "workload-source-spoofing":
		return map[string]string{"workloadSourceSpoofing": strings.ToLower(text)}, true
	case "vxlan-port":
		return map[string]string{"vxlanPort": text}, true
	}
	if key, ok := map[string]string{"timeout-tcp-syn": "tcpSynSent", "timeout-tcp-established": "tcpEstablished",
		"timeout-tcp-fin": "tcpFinsSeen", "timeout-udp": "udpTimeout", "timeout-other": "genericTimeout",
		"timeout-icmp": "icmpTimeout"}[s.Name]; ok {
		return map[string]string{fieldTimeouts: "creationGracePeriod=10s," + key + "=" + text}, true
	}
	if len(s.Felix) > 0 {
		t.Fatalf("%s is taken from %v: the test has no sample of it", s.Name, s.Felix)
	}
	return nil, false
}

// sources are everything that values can come from.
type sources struct {
	local   Local
	updates []model.Update
}

func newSources() *sources {
	return &sources{
		local:   Local{Host: "n1"},
		updates: []model.Update{model.NodeUpdate{Name: "n1", Node: &model.Node{Labels: map[string]string{"rack": "r1"}}}},
	}
}

// layerNames are the layers from the lowest to the highest.
var layerNames = []string{"default", "racks", "node.n1", "file", "environment", "flag"}

// set makes a layer have a value of a setting. Not ok: that layer cannot.
func (in *sources) set(t *testing.T, layer string, s Setting, text string) bool {
	t.Helper()
	switch layer {
	case "file":
		if s.NotInFile {
			return false
		}
		in.local.File = &File{Path: "/etc/m.yaml", Text: fmt.Appendf(nil, "# comment\n%s: %q\n", s.Name, text)}
	case "environment":
		in.local.Environment = append(in.local.Environment, s.Environment()+"="+text)
	case "flag":
		in.local.Flags = append(in.local.Flags, Flag{s.Name, text})
	default:
		values, ok := felixSample(t, s, text)
		if !ok {
			return false
		}
		in.updates = append(in.updates, configuration(layer, values))
	}
	return true
}

func configuration(name string, values map[string]string) model.ConfigurationUpdate {
	c := &model.Configuration{Values: values}
	if name != "default" && !strings.HasPrefix(name, "node.") {
		c.NodeSelector = selector.Equal("rack", "r1")
	}
	return model.ConfigurationUpdate{Name: name, Configuration: c}
}

func (in *sources) layers(t *testing.T) *Layers {
	t.Helper()
	l, warnings, err := New(in.local)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v; warnings %v", err, warnings)
	}
	l.Apply(in.updates)
	return l
}

func value(t *testing.T, l *Layers, name string) Value {
	t.Helper()
	for _, v := range l.Values() {
		if v.Setting == name {
			return v
		}
	}
	t.Fatalf("no setting %s", name)
	return Value{}
}

// sourceOf is how a layer is named as the source of a setting's value.
func sourceOf(layer string, s Setting) string {
	switch layer {
	case "file":
		return "/etc/m.yaml line 2"
	case "environment":
		return "environment variable " + s.Environment()
	case "flag":
		return "--" + s.Name
	}
	return "FelixConfiguration " + layer + ", field " + s.Felix[0]
}

// TestEveryLayerOverridesTheOnesBelow: for each setting and each two layers the higher one counts and the lower one is
// known to be overridden.
func TestEveryLayerOverridesTheOnesBelow(t *testing.T) {
	for _, s := range Settings() {
		x := samples(t, s)
		for i, low := range layerNames {
			for _, high := range layerNames[i+1:] {
				in := newSources()
				if !in.set(t, low, s, x[0]) {
					continue
				}
				want := Value{Setting: s.Name, Text: x[0], Source: sourceOf(low, s), Effect: s.Effect,
					Overridden: []Overridden{{builtInOf(s), builtIn}}}
				if diff := cmp.Diff(want, value(t, in.layers(t), s.Name)); diff != "" {
					t.Errorf("%s in %s (-want +got):\n%s", s.Name, low, diff)
				}
				if !in.set(t, high, s, x[1]) {
					continue
				}
				want.Overridden = append([]Overridden{{x[0], sourceOf(low, s)}}, want.Overridden...)
				want.Text, want.Source = x[1], sourceOf(high, s)
				l := in.layers(t)
				if diff := cmp.Diff(want, value(t, l, s.Name)); diff != "" {
					t.Errorf("%s in %s over %s (-want +got):\n%s", s.Name, high, low, diff)
				}
				if got := s.Print(l.Config()); got != x[1] {
					t.Errorf("%s in %s over %s is %s in force, want %s", s.Name, high, low, got, x[1])
				}
			}
		}
	}
}

func builtInOf(s Setting) string {
	if s.Name == "node" {
		return "n1"
	}
	return s.Default()
}

func TestTheTableIsSound(t *testing.T) {
	variables := map[string]bool{}
	for i, s := range settings {
		if i > 0 && settings[i-1].Name >= s.Name {
			t.Errorf("%s and %s are not in order", settings[i-1].Name, s.Name)
		}
		if s.Usage == "" || strings.Contains(s.Usage, "\n") || s.Effect == Unchanged || s.Type == "" {
			t.Errorf("%s: usage %q, effect %s, type %q", s.Name, s.Usage, s.Effect, s.Type)
		}
		if variables[s.Environment()] {
			t.Errorf("%s is the variable of two settings", s.Environment())
		}
		variables[s.Environment()] = true
		for _, text := range append([]string{s.Default()}, samples2(t, *s)...) {
			if again, err := s.parse(text); err != nil || again.text != text {
				t.Errorf("%s: %q is read as %q, %v", s.Name, text, again.text, err)
			}
		}
		if find(s.Name) != s {
			t.Errorf("%s is not found", s.Name)
		}
	}
	if find("log") != nil {
		t.Error("a setting is found that is none")
	}
}

func samples2(t *testing.T, s Setting) []string {
	x := samples(t, s)
	return x[:]
}

// TestNoClockIsRead: of package time there are durations here, nothing else.
func TestNoClockIsRead(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := regexp.MustCompile(`\btime\.(\w+)`)
	fine := []string{"Duration", "ParseDuration", "Millisecond", "Second", "Minute", "Hour"}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(f, "_test.go") && !slices.Contains(fine, m[1]) {
				t.Errorf("%s uses %s", f, m[0])
			}
		}
	}
}

// TestWhatASettingSaysOfItsValuesIsTrue: words, patterns and largest numbers are those that reading a value goes by. A
// schema is made of them.
func TestWhatASettingSaysOfItsValuesIsTrue(t *testing.T) {
	for _, s := range Settings() {
		two := samples(t, s)
		pattern := regexp.MustCompile(s.Pattern)
		for _, valid := range append([]string{s.Default()}, two[:]...) {
			if valid == "" {
				continue // given nowhere
			}
			if !pattern.MatchString(valid) || s.Words != nil && !slices.Contains(s.Words, valid) {
				t.Errorf("%s: %q is valid, and neither like %q nor among %q", s.Name, valid, s.Pattern, s.Words)
			}
		}
		for _, word := range s.Words {
			if _, err := s.parse(word); err != nil {
				t.Errorf("%s: its word %q is refused: %v", s.Name, word, err)
			}
		}
		if (s.Type == "number") != (s.Max > 0) {
			t.Errorf("%s is a %s of at most %d", s.Name, s.Type, s.Max)
		}
		if _, err := s.parse(fmt.Sprint(s.Max)); s.Max > 0 && err != nil {
			t.Errorf("%s: its largest value %d is refused: %v", s.Name, s.Max, err)
		}
		if _, err := s.parse(fmt.Sprint(s.Max + 1)); s.Max > 0 && err == nil {
			t.Errorf("%s takes %d, which is more than its largest", s.Name, s.Max+1)
		}
		for _, bad := range []string{"loud", "1 minute", "=", "a=", ":", "0xg", "123456789", "-1", "1e3"} {
			_, err := s.parse(bad)
			if like := pattern.MatchString(bad) && (s.Words == nil || slices.Contains(s.Words, bad)); err == nil && !like {
				t.Errorf("%s takes %q, which is not like %q", s.Name, bad, s.Pattern)
			}
		}
	}
	for _, bad := range []string{"", "a/b", "a b", "eni\t", "eni\n", "\u00a0"} {
		if _, err := find(interfacePrefix).parse(bad); err == nil {
			t.Errorf("interface-prefix %q is taken", bad)
		}
	}
	for name, bad := range map[string]string{"resync-every": "1 minute", "mark-mask": "0xg", "map-size": "ct4=1,ct6=0", "tunnel-ports": "a",
		"interface-prefix": "toolongaprefix", "instance": "v1.2", "health-address": "localhost", "flow-quota": "many"} {
		if s := find(name); regexp.MustCompile(s.Pattern).MatchString(bad) {
			t.Errorf("%s: %q is like %q", name, bad, s.Pattern)
		}
	}
}

// The name of an agent becomes a name in a BPF file system, which takes none with a dot, and a directory of the socket.
func TestTheNameOfAnAgentFitsItsPaths(t *testing.T) {
	for _, good := range []string{"", "blue", "Blue-2_x", strings.Repeat("a", 64)} {
		if got, err := ParseInstance(good); err != nil || got != good {
			t.Errorf("%q: %q, %v", good, got, err)
		}
	}
	for _, bad := range []string{"v1.2", "a/b", "../x", "a b", "é", "a\n", strings.Repeat("a", 65)} {
		if _, err := find("instance").parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
