package config

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

func TestAPrefixThatNamesAnUplinkIsRefused(t *testing.T) {
	const why = "also names eth0, by which the node's default route leads: it would be closed"
	for _, tc := range []struct {
		name  string
		local Local
		want  string // the error; empty: none
	}{
		{"the built-in one", Local{Uplinks: []string{"eth0"}}, ""},
		{"a flag", Local{Uplinks: []string{"eth0", "wlan0"}, Flags: []Flag{{interfacePrefix, "eth"}}}, `--interface-prefix "eth" ` + why},
		{"a flag that names two", Local{Uplinks: []string{"eth0", "eth1"}, Flags: []Flag{{interfacePrefix, "e"}}},
			`--interface-prefix "e" also names eth0 and eth1, by which the node's default route leads: it would be closed`},
		{"a variable", Local{Uplinks: []string{"eth0"}, Environment: []string{"MARGAY_INTERFACE_PREFIX=eth0"}},
			`interface-prefix "eth0" (environment variable MARGAY_INTERFACE_PREFIX) ` + why},
		{"a file", Local{Uplinks: []string{"eth0"}, File: &File{Path: "f", Text: []byte("interface-prefix: eth\n")}},
			`interface-prefix "eth" (f line 1) ` + why},
		{"one that begins in another way", Local{Uplinks: []string{"eth0"}, Flags: []Flag{{interfacePrefix, "eth1"}}}, ""},
		{"one that names the loopback interface", Local{Uplinks: []string{"eth0"}, Loopbacks: []string{"lo"}, Flags: []Flag{{interfacePrefix, "lo"}}},
			`--interface-prefix "lo" also names lo, the node's loopback interface: it would be closed`},
		{"one that names both", Local{Uplinks: []string{"lan0"}, Loopbacks: []string{"lo"}, Flags: []Flag{{interfacePrefix, "l"}}},
			`--interface-prefix "l" also names lan0, by which the node's default route leads: it would be closed; also names lo, the node's loopback interface: it would be closed`},
		{"one beside the loopback interface", Local{Loopbacks: []string{"lo"}, Flags: []Flag{{interfacePrefix, "lo0"}}}, ""},
		{"one that does not count", Local{Uplinks: []string{"eth0"}, Environment: []string{"MARGAY_INTERFACE_PREFIX=eth"},
			Flags: []Flag{{interfacePrefix, "eni"}}}, ""},
	} {
		tc.local.Host = "n"
		_, _, err := New(tc.local)
		if got := errorText(err); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// An agent that runs keeps the prefix that it has.
func TestAPrefixThatComesToNameAnUplinkIsNotUsed(t *testing.T) {
	l, _, err := New(Local{Host: "n", Uplinks: []string{"eth0"}, Loopbacks: []string{"lo"}, File: &File{Path: "f", Text: []byte("interface-prefix: eni\n")}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when, prefix string) {
		t.Helper()
		if got := l.Config().InterfacePrefix; got != prefix {
			t.Errorf("%s: the prefix is %q, want %q", when, got, prefix)
		}
	}
	if c, err := l.SetFile(&File{Path: "f", Text: []byte("interface-prefix: eth\n")}); err == nil || l.FileErr() == nil || c.Effect != Unchanged {
		t.Errorf("a file with the uplink's prefix: %+v, %v", c, err)
	}
	want("a file with the uplink's prefix", "eni")
	if _, err := l.SetFile(nil); err != nil || l.FileErr() != nil {
		t.Errorf("no file: %v, %v", err, l.FileErr())
	}
	felix := func(prefix string) {
		l.Apply([]model.Update{model.ConfigurationUpdate{Name: "default", Configuration: &model.Configuration{Values: map[string]string{"interfacePrefix": prefix}}}})
	}
	felix("azv")
	want("a FelixConfiguration", "azv")
	felix("eth")
	want("a FelixConfiguration with the uplink's prefix", "azv")
	if p := l.Problems(); len(p) != 1 || !p[0].Ignored || !strings.Contains(p[0].String(), `FelixConfiguration default, field interfacePrefix "eth": also names eth0, by`) ||
		!strings.HasSuffix(p[0].String(), "interface-prefix stays azv") {
		t.Errorf("problems: %v", p)
	}
	felix("lo")
	want("a FelixConfiguration with the prefix of the loopback interface", "azv")
	if p := l.Problems(); len(p) != 1 || !strings.Contains(p[0].String(), `interfacePrefix "lo": also names lo, the node's loopback interface`) {
		t.Errorf("problems: %v", p)
	}
}
