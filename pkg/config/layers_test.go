package config

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func mustNew(t *testing.T, local Local) *Layers {
	t.Helper()
	local.Host = "n1"
	l, _, err := New(local)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func node(name string, labels map[string]string) model.NodeUpdate {
	return model.NodeUpdate{Name: name, Node: &model.Node{Labels: labels}}
}

func apply(t *testing.T, l *Layers, want Change, updates ...model.Update) {
	t.Helper()
	if diff := cmp.Diff(want, l.Apply(updates)); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
}

func TestChangesSayWhatTheyTake(t *testing.T) {
	l := mustNew(t, Local{Environment: []string{"MARGAY_VXLAN_PORT=5"}})
	apply(t, l, Change{[]string{"log-level"}, Live}, configuration("default", map[string]string{"logSeverityScreen": "Debug"}))
	apply(t, l, Change{}, configuration("default", map[string]string{"logSeverityScreen": "debug", "vxlanPort": "7", "healthPort": "1"}))
	apply(t, l, Change{[]string{"default-endpoint-to-host-action", "log-level"}, Reopen},
		configuration("default", map[string]string{"defaultEndpointToHostAction": "Drop"}))
	apply(t, l, Change{[]string{"default-endpoint-to-host-action", "interface-prefix", "log-level"}, Restart},
		configuration("default", map[string]string{"logSeverityScreen": "Error", "interfacePrefix": "tap"}))
	apply(t, l, Change{}, configuration("node.n2", map[string]string{"logSeverityScreen": "Debug"}),
		node("n2", map[string]string{"a": "b"}), model.InSync{}, model.ProfileUpdate{Name: "p"})
	apply(t, l, Change{[]string{"interface-prefix", "log-level"}, Restart}, model.ConfigurationUpdate{Name: "default"})
	if diff := cmp.Diff(Between(Defaults(), l.Config()), Change{[]string{"node", "vxlan-port"}, Restart}); diff != "" {
		t.Error(diff)
	}
}

// TestAValueThatBecomesInvalidStays: what was valid before stays in force, as long as the object says anything.
func TestAValueThatBecomesInvalidStays(t *testing.T) {
	l := mustNew(t, Local{})
	say := func(object, level string) {
		l.Apply([]model.Update{configuration(object, map[string]string{"logSeverityScreen": level})})
	}
	level := func(want string, problems int) {
		t.Helper()
		if got := l.Config().LogLevel; got != want || len(l.Problems()) != problems {
			t.Errorf("log level %s, want %s; problems %v, want %d", got, want, l.Problems(), problems)
		}
	}
	say("default", "Warning")
	say("node.n1", "Loud")
	level("warn", 1) // never was valid: the layer below
	say("node.n1", "Debug")
	level("debug", 0)
	say("node.n1", "Loud")
	level("debug", 1)
	say("default", "Error")
	say("node.n1", "Louder")
	level("debug", 1)
	if p := l.Problems()[0].String(); !strings.HasSuffix(p, `"Louder": want Trace, Debug, Info, Warning, Error or Fatal; log-level stays debug`) {
		t.Errorf("problem %s", p)
	}
	say("node.n1", "")
	level("error", 0)
	say("node.n1", "Loud")
	level("error", 1) // what it was before it was taken back is forgotten
	l.Apply([]model.Update{model.ConfigurationUpdate{Name: "node.n1"}})
	level("error", 0)
}

// TestANodeMovesBetweenConfigurations as its labels change.
func TestANodeMovesBetweenConfigurations(t *testing.T) {
	l := mustNew(t, Local{})
	racks := func(name, rack, port string, created int64) model.Update {
		return model.ConfigurationUpdate{Name: name, Configuration: &model.Configuration{
			NodeSelector: selector.Equal("rack", rack), Created: created, Values: map[string]string{"vxlanPort": port}}}
	}
	l.Apply([]model.Update{racks("a", "r1", "1001", 50), racks("b", "r2", "1002", 50), racks("c", "r2", "1003", 40), racks("d", "r3", "1004", 60),
		racks("e", "r3", "1005", 60),
		// Neither of these is for nodes by label, whatever it says.
		model.ConfigurationUpdate{Name: "nobody", Configuration: &model.Configuration{Values: map[string]string{"vxlanPort": "1006"}}},
		model.ConfigurationUpdate{Name: "node.n2", Configuration: &model.Configuration{NodeSelector: selector.All(), Values: map[string]string{"vxlanPort": "1007"}}},
	})
	want := func(port uint16) {
		t.Helper()
		if got := l.Config().VXLANPort; got != port {
			t.Errorf("vxlan-port %d, want %d", got, port)
		}
	}
	everywhere := model.ConfigurationUpdate{Name: "everywhere", Configuration: &model.Configuration{
		NodeSelector: selector.All(), Created: 99, Values: map[string]string{"vxlanPort": "1000"}}}
	l.Apply([]model.Update{everywhere})
	want(4789) // the node is not known
	l.Apply([]model.Update{node("n1", nil)})
	want(1000)
	l.Apply([]model.Update{model.ConfigurationUpdate{Name: "everywhere"}})
	want(4789)
	l.Apply([]model.Update{node("n1", nil)})
	want(4789)
	l.Apply([]model.Update{node("n1", map[string]string{"rack": "r1"})})
	want(1001)
	l.Apply([]model.Update{node("n1", map[string]string{"rack": "r2"}), node("n2", map[string]string{"rack": "r1"})})
	want(1003) // the older
	l.Apply([]model.Update{node("n1", map[string]string{"rack": "r3"})})
	want(1004) // the lower name
	l.Apply([]model.Update{model.ConfigurationUpdate{Name: "d"}})
	want(1005)
	l.Apply([]model.Update{configuration("node.n1", map[string]string{"vxlanPort": "1008"})})
	want(1008)
	l.Apply([]model.Update{model.ConfigurationUpdate{Name: "node.n1"}, model.NodeUpdate{Name: "n1"}})
	want(4789)
}

// TestTheNodeIsTheOneThatIsNamed: labels and node.* are those of --node, not of the host.
func TestTheNodeIsTheOneThatIsNamed(t *testing.T) {
	l := mustNew(t, Local{Flags: []Flag{{"node", "named"}}})
	l.Apply([]model.Update{configuration("node.n1", map[string]string{"vxlanPort": "1"}), configuration("node.named", map[string]string{"vxlanPort": "2"})})
	if l.Config().VXLANPort != 2 || l.Config().Node != "named" {
		t.Errorf("%d for node %s", l.Config().VXLANPort, l.Config().Node)
	}
}

func TestTheFileChanges(t *testing.T) {
	l := mustNew(t, Local{File: &File{Path: "/m.yaml", Text: []byte("event-rate: 5")}})
	if change, err := l.SetFile(&File{Path: "/m.yaml", Text: []byte("event-rate: 6\nevent-rats: 7")}); err == nil || change.Effect != Unchanged || l.Config().EventRate != 5 {
		t.Errorf("a file that is not valid: %v, %v, event-rate %d", err, change, l.Config().EventRate)
	}
	change, err := l.SetFile(&File{Path: "/m.yaml", Text: []byte("event-rate: 6\npprof: true")})
	if diff := cmp.Diff(Change{[]string{"event-rate", "pprof"}, Restart}, change); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	change, err = l.SetFile(nil)
	if diff := cmp.Diff(Change{[]string{"event-rate", "pprof"}, Restart}, change); err != nil || diff != "" || l.Config().EventRate != 1000 {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestAFileThatNoAgentCanStartWithIsWithdrawn: the values that the last agent ran with are in force again, also what has changed while it ran.
func TestAFileThatNoAgentCanStartWithIsWithdrawn(t *testing.T) {
	l := mustNew(t, Local{File: &File{Path: "/m.yaml", Text: []byte("event-rate: 5")}})
	set := func(text string) {
		t.Helper()
		if _, err := l.SetFile(&File{Path: "/m.yaml", Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(withdrawn bool, level string, rate uint32) {
		t.Helper()
		why := errors.New("why")
		if got := l.Withdraw(why); got != withdrawn || l.Config().LogLevel != level || l.Config().EventRate != rate {
			t.Errorf("withdrawn %t, log-level %s, event-rate %d", got, l.Config().LogLevel, l.Config().EventRate)
		}
		if withdrawn && l.FileErr() != why || !withdrawn && l.FileErr() != nil {
			t.Errorf("%v", l.FileErr())
		}
	}
	want(false, "info", 5) // of an agent that starts
	set("event-rate: 5\nlog-level: debug")
	set("event-rate: 6\npprof: true")
	want(true, "debug", 5)
	set("event-rate: 7")
	l.Used()
	want(false, "info", 7)
}

// TestASourceThatStartsAnew: what it delivers again counts all the while, what it does not is gone when it is in sync.
func TestASourceThatStartsAnew(t *testing.T) {
	l := mustNew(t, Local{})
	gone, kept := configuration("node.n1", map[string]string{"vxlanPort": "1"}), configuration("default", map[string]string{"vxlanPort": "2", "logSeverityScreen": "Debug"})
	rack := configuration("racks", map[string]string{"defaultEndpointToHostAction": "Drop"})
	l.Apply([]model.Update{gone, kept, rack, node("n1", map[string]string{"rack": "r1"}), model.InSync{}})
	l.SourceRestarted()
	apply(t, l, Change{}, kept, rack)
	apply(t, l, Change{[]string{"default-endpoint-to-host-action", "vxlan-port"}, Reopen}, model.InSync{})
	apply(t, l, Change{[]string{"default-endpoint-to-host-action"}, Reopen}, node("n1", map[string]string{"rack": "r1"}))
	apply(t, l, Change{}, model.InSync{})
	if c := l.Config(); c.VXLANPort != 2 || c.LogLevel != "debug" || !c.HostDrop {
		t.Errorf("%+v", c)
	}
}

// TestTheOrderOfUpdatesDoesNotMatter, nor how they are cut into batches: only what is there in the end.
func TestTheOrderOfUpdatesDoesNotMatter(t *testing.T) {
	updates := []model.Update{
		node("n1", map[string]string{"rack": "r1"}),
		configuration("default", map[string]string{"logSeverityScreen": "Loud", "vxlanPort": "7", fieldTimeouts: "udpTimeout=1ms,icmpTimeout=9s,x=1", "healthPrt": "1"}),
		configuration("node.n1", map[string]string{fieldVXLANAllowed: "true", "iptablesFilterDenyAction": "Reject", "interfacePrefix": "a,b"}),
		configuration("racks-a", map[string]string{"vxlanPort": "8"}),
		configuration("racks-b", map[string]string{"vxlanPort": "9"}),
		configuration("node.n2", map[string]string{"vxlanPort": "nine"}),
	}
	outcome := func(updates []model.Update, batch int) (Config, []Value, []Problem) {
		l := mustNew(t, Local{Environment: []string{"MARGAY_EVENT_RATE=5", "MARGAY_NODE=n1"}, Flags: []Flag{{"pprof", "true"}}})
		for len(updates) > 0 {
			n := min(batch, len(updates))
			l.Apply(updates[:n])
			updates = updates[n:]
		}
		return l.Config(), l.Values(), l.Problems()
	}
	config, values, problems := outcome(updates, len(updates))
	if len(problems) != 7 || config.VXLANPort != 8 {
		t.Fatalf("%d problems, vxlan-port %d: the test tests something else", len(problems), config.VXLANPort)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		random.Shuffle(len(updates), func(i, j int) { updates[i], updates[j] = updates[j], updates[i] })
		c, v, p := outcome(updates, 1+random.IntN(len(updates)))
		if diff := cmp.Diff([]any{config, values, problems}, []any{c, v, p}, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	}
}

func TestMarks(t *testing.T) {
	if a, b, c := Defaults().Marks(); a != 0x400 || b != 0x800 || c != 0x1000 {
		t.Errorf("%#x %#x %#x", a, b, c)
	}
	if a, b, c := (dataplane.Config{MarkMask: 0xf0000001}).Marks(); a != 1 || b != 0x10000000 || c != 0x20000000 {
		t.Errorf("%#x %#x %#x", a, b, c)
	}
}

// Values are compared, not what is printed of them: a directory called off is not the same as none.
func TestBetweenComparesValues(t *testing.T) {
	none, called := Defaults(), Defaults()
	called.EndpointStatusDir = "off"
	if find("endpoint-status-dir").Print(none) != find("endpoint-status-dir").Print(called) {
		t.Fatal("the two are printed differently, so the test shows nothing")
	}
	if got := Between(none, called); !slices.Equal(got.Settings, []string{"endpoint-status-dir"}) {
		t.Errorf("changed: %v", got.Settings)
	}
	for _, s := range settings {
		a, b := Defaults(), Defaults()
		for i, c := range []*Config{&a, &b} {
			v, err := s.parse(samples(t, *s)[i])
			if err != nil {
				t.Fatal(err)
			}
			v.set(c)
		}
		if got := Between(a, b); !slices.Equal(got.Settings, []string{s.Name}) || got.Effect != s.Effect {
			t.Errorf("%s: changed %v, effect %s", s.Name, got.Settings, got.Effect)
		}
		if got := Between(a, a); got.Settings != nil || got.Effect != Unchanged {
			t.Errorf("%s: the same value counts as a change", s.Name)
		}
	}
}
