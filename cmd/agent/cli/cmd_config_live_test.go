//go:build linux

package cli

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// wantSetting waits until the running agent has a value from a source.
func (n *liveNode) wantSetting(name, value, source string) {
	n.t.Helper()
	var last inspect.ConfigRow
	testutil.WaitFor(n.t, time.Minute, name+" to be "+value+" from "+source, func() bool {
		out, code := n.cli("config", "-o", "json")
		if code != 0 || strings.Contains(out, "no agent answers") {
			return false
		}
		for _, r := range decode[[]inspect.ConfigRow](n.t, out) {
			if r.Name == name {
				last = r
			}
		}
		return last.Value == value && last.Source == source
	})
}

func (n *liveNode) write(path, text string) {
	n.t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		n.t.Fatal(err)
	}
}

// TestConfigurationOfALiveAgent changes what file and datastore say while one connection goes on and another is denied.
func TestConfigurationOfALiveAgent(t *testing.T) {
	n := newNode(t)
	file, felix := filepath.Join(t.TempDir(), "margay.yaml"), filepath.Join(n.dir, "felix.yaml")
	object := func(spec string) string {
		return "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {" + spec + "}\n"
	}
	n.write(file, "event-rate: 500\n")
	n.write(felix, object("logSeverityScreen: Warning"))
	t.Setenv("MARGAY_CONFIG_FILE", file)
	n.start()
	n.wantSetting("event-rate", "500", file+" line 1")
	n.wantSetting("log-level", "warn", "FelixConfiguration default, field logSeverityScreen")
	n.want(0, []string{"environment variable MARGAY_CONFIG_FILE", "--instance"}, "config")
	process := n.agent.Process.Pid
	stream, err := echo.StartStream(n.web.Host, netip.AddrPortFrom(n.db.Addr4(), 80), echo.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// Reopened: the datastore changes.
	n.write(felix, object("defaultEndpointToHostAction: Drop, vxlanPort: 99999, bpfConntrackTimeouts: {tcpSynSent: 5s}"))
	n.wantSetting("default-endpoint-to-host-action", "Drop", "FelixConfiguration default, field defaultEndpointToHostAction")
	n.wantSetting("timeout-tcp-syn", "5s", "FelixConfiguration default, field bpfConntrackTimeouts")
	n.wantSetting("log-level", "info", "built-in default")
	n.want(0, []string{"FelixConfiguration default", "spec.vxlanPort", "want a port, 0 to 65535; vxlan-port stays 4789"}, "show", "problems")
	n.wantReach(80, true)
	n.wantReach(81, false)

	// Restarted within the process: the file changes.
	n.write(file, "pprof: true\n")
	n.wantSetting("pprof", "true", file+" line 1")
	n.wantSetting("default-endpoint-to-host-action", "Drop", "FelixConfiguration default, field defaultEndpointToHostAction")
	n.wantReach(80, true)
	n.wantReach(81, false)

	// What is not valid changes nothing; and what comes after it counts again.
	n.write(file, "pprof: false\nlog-level: loud\n")
	n.write(felix, object("defaultEndpointToHostAction: Explode"))
	testutil.WaitFor(t, time.Minute, "the problem to be reported", func() bool {
		out, _ := n.cli("show", "problems")
		return strings.Contains(out, `"Explode": want Drop, Return or Accept; default-endpoint-to-host-action stays Drop`)
	})
	n.write(felix, object("logSeverityScreen: Error"))
	n.wantSetting("default-endpoint-to-host-action", "Accept", "built-in default")
	n.wantSetting("pprof", "true", file+" line 1")
	n.write(file, "log-level: debug\n")
	n.wantSetting("log-level", "debug", file+" line 1")
	n.wantSetting("pprof", "false", "built-in default")
	n.wantReach(81, false)

	// An agent that started without the file, which was named, would end at once.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	reported := func() bool {
		out, _ := n.cli("show", "problems")
		return strings.Contains(out, "the configuration file cannot be used: open "+file+": no such file or directory")
	}
	testutil.WaitFor(t, time.Minute, "the missing file to be reported", reported)
	n.wantSetting("log-level", "debug", file+" line 1")
	n.write(file, "log-level: debug\n")
	testutil.WaitFor(t, time.Minute, "the file to be in force again", func() bool { return !reported() })

	// Nor could one start with this.
	n.write(file, "log-level: warn\ndatastore: etcd\n")
	refused := func() bool {
		out, _ := n.cli("show", "problems")
		return strings.Contains(out, "the configuration file cannot be used: "+file+": --datastore etcd needs --etcd-endpoints")
	}
	testutil.WaitFor(t, time.Minute, "the file to be reported that no agent can start with", refused)
	n.wantSetting("log-level", "debug", file+" line 1")
	n.wantReach(80, true)
	n.wantReach(81, false)
	n.write(file, "log-level: debug\n")
	testutil.WaitFor(t, time.Minute, "the file to be in force again", func() bool { return !refused() })

	if r := stream.Stop(); r.Received != r.Sent || r.Connects != 1 || r.Errors > 0 || r.Sent < 100 {
		t.Errorf("a connection that was open all the time: %+v", r)
	}
	if n.agent.Process.Pid != process {
		t.Error("the agent is another process")
	}
}
