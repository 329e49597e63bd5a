//go:build linux

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
)

func TestEnvironmentSetsFlagsThatAreNotGiven(t *testing.T) {
	t.Setenv("MARGAY_SOCKET", "from-environment.sock")
	t.Setenv("MARGAY_DIR", "of the agent beside us") // must not make explain read manifests
	run := func(args ...string) string {
		var out bytes.Buffer
		execute(t.Context(), args, &out, &out)
		return out.String()
	}
	if got := run("explain", "a", "b:1"); !strings.Contains(got, "from-environment.sock") {
		t.Errorf("the environment was not read: %s", got)
	}
	if got := run("explain", "a", "b:1", "--socket", "given.sock"); !strings.Contains(got, "given.sock") {
		t.Errorf("the environment was preferred to the flag: %s", got)
	}
	t.Setenv("MARGAY_SOCKET", "") // the same as none
	if got := run("explain", "a", "b:1", "--instance", "none-of-this-name"); !strings.Contains(got, "/run/margay-none-of-this-name/agent.sock") {
		t.Errorf("an empty variable is a value: %s", got)
	}
}

// Settings have variables, and no other flag has one: what an agent's environment says changes no tool beside it.
func TestOnlySettingsHaveVariables(t *testing.T) {
	known := map[string]bool{}
	for _, s := range config.Settings() {
		known[s.Environment()] = true
	}
	flags := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags++
			if name := variable(f); name != "" && !known[name] {
				t.Errorf("%s: --%s has the variable %s, which is no setting's", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root())
	if flags < 50 {
		t.Errorf("only %d flags were found", flags)
	}
	t.Setenv("MARGAY_OUTPUT", "xml")
	var out bytes.Buffer
	if execute(t.Context(), []string{"version"}, &out, &out); strings.Contains(out.String(), "xml") {
		t.Errorf("a variable that is no setting's was read: %s", &out)
	}
}

// TestEverySettingThatReopensTheDataplaneReachesIt: and no other does, so that what is live stays so.
func TestEverySettingThatReopensTheDataplaneReachesIt(t *testing.T) {
	values := map[string]string{"text": "x", "number": "77", "bool": "true", "duration": "77s"}
	words := map[string]string{"default-endpoint-to-host-action": "Drop", "existing-connections": "keep", "mid-flow": "strict",
		"mark-mask": "0xe0000000", "iptables-mark-mask": "0xfff00000", "masquerade-mark": "0x1", "iptables-backend": "nft", "map-size": "a=5", "log-level": "debug", "dataplane": "bpf", "datastore": "kubernetes",
		"health-address": "off", "metrics-address": "off", "events": "false", "endpoint-status-dir": "/x", "pod-ips-from-annotations": "calico",
		"tunnel-ports": "off", "workload-source-spoofing": "Any", "etcd-endpoints": "https://a:2379"}
	before := config.Defaults().Config
	for _, s := range config.Settings() {
		value := values[s.Type]
		if word, ok := words[s.Name]; ok {
			value = word
		}
		l, _, err := config.New(config.Local{Host: "n", Flags: []config.Flag{{Name: s.Name, Value: value}}})
		if err != nil {
			t.Fatal(err)
		}
		changed := !cmp.Equal(before, l.Config().Config, cmpopts.EquateEmpty())
		if s.Effect == config.Reopen && !changed || s.Effect == config.Live && changed {
			t.Errorf("%s=%s: effect %s, changes the dataplane: %v", s.Name, value, s.Effect, changed)
		}
	}
}

func TestInstancesHaveSocketsOfTheirOwn(t *testing.T) {
	for want, f := range map[string]instanceFlags{
		"/run/margay/agent.sock":    {},
		"/run/margay-nx/agent.sock": {instance: "nx"},
		"/tmp/x.sock":               {instance: "nx", socket: "/tmp/x.sock"},
	} {
		if got := f.socketPath(); got != want {
			t.Errorf("socket %s, want %s", got, want)
		}
	}
}
