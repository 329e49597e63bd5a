package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatIsNotValidStopsTheStartAndSaysWhereItIs has one clear line for each.
func TestWhatIsNotValidStopsTheStartAndSaysWhereItIs(t *testing.T) {
	for name, test := range map[string]struct {
		flag, environment, file string
		want                    string
	}{
		"flag":                     {flag: "log-level=loud", want: `--log-level "loud": want debug, info, warn or error`},
		"flag, two words":          {flag: "mid-flow=no", want: `--mid-flow "no": want judge or strict`},
		"flag, number":             {flag: "event-rate=-1", want: `--event-rate "-1": want a number from 0 to 4294967295`},
		"flag, port":               {flag: "vxlan-port=65536", want: `--vxlan-port "65536": want a port, 0 to 65535`},
		"flag, bool":               {flag: "pprof=maybe", want: `--pprof "maybe": want true or false`},
		"flag, duration":           {flag: "timeout-udp=60", want: `--timeout-udp "60": want a duration such as 90s, 10m or 1h`},
		"flag, short duration":     {flag: "timeout-udp=10ms", want: `--timeout-udp "10ms": want a duration of at least 1s`},
		"flag, no duration":        {flag: "resync-every=0", want: `--resync-every "0": want a duration of at least 1ms`},
		"flag, prefix":             {flag: "interface-prefix=toolongname", want: `--interface-prefix "toolongname": want 1 to 8 characters`},
		"flag, no prefix":          {flag: "interface-prefix=", want: `--interface-prefix "": want 1 to 8 characters`},
		"flag, two bits":           {flag: "mark-mask=0x3", want: `--mark-mask "0x3": three bits are needed`},
		"flag, bits of kube-proxy": {flag: "mark-mask=0xf000", want: `--mark-mask "0xf000": 0x4000 and 0x8000 are kube-proxy's`},
		"flag, no mask":            {flag: "mark-mask=all", want: `--mark-mask "all": want a number such as 0x00001c00`},
		"flag, map":                {flag: "map-size=a=1,b", want: `--map-size "a=1,b": want NAME=ENTRIES, as in ct4=1000000`},
		"flag, no entries":         {flag: "map-size=a=0", want: `--map-size "a=0": want NAME=ENTRIES, as in ct4=1000000`},
		"flag, no port":            {flag: "health-address=localhost", want: `--health-address "localhost": want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off`},
		"flag, host name":          {flag: "metrics-address=foo:80", want: `--metrics-address "foo:80": host "foo" is no IP address (0.0.0.0 means all interfaces): want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off`},
		"flag, port 0":             {flag: "metrics-address=:0", want: `--metrics-address ":0": port "0" is not a number from 1 to 65535: want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off`},
		"flag, port too large":     {flag: "metrics-address=[::1]:65536", want: `--metrics-address "[::1]:65536": port "65536" is not a number from 1 to 65535: want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off`},
		"flag, bare IPv6":          {flag: "metrics-address=::1:80", want: `--metrics-address "::1:80": want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off`},
		"flag, too few bits":       {flag: "iptables-mark-mask=0xffe00000", want: `--iptables-mark-mask "0xffe00000": 12 bits next to each other are needed`},
		"flag, bits apart":         {flag: "iptables-mark-mask=0xfff700ff", want: `--iptables-mark-mask "0xfff700ff": 12 bits next to each other are needed`},
		"flag, two mark bits":      {flag: "masquerade-mark=3", want: `--masquerade-mark "3": want a number of one bit such as 0x00004000, or 0`},
		"no such dataplane":        {flag: "dataplane=ebpf", want: `--dataplane "ebpf": want auto, bpf, iptables or record`},
		"environment":              {environment: "MARGAY_LOG_LEVEL=loud", want: `environment variable MARGAY_LOG_LEVEL "loud": want debug, info, warn or error`},
		"file":                     {file: "\n\nlog-level: loud", want: `/etc/m.yaml line 3: log-level "loud": want debug, info, warn or error`},
		"file, a list":             {file: "node: [{a: b}]", want: `/etc/m.yaml line 1: node: want one value`},
		"file, unknown":            {file: "# x\nlogLevel: info", want: `/etc/m.yaml line 2: there is no setting "logLevel"; is log-level meant?`},
		"file, unlike any":         {file: "colour-of-the-sky: blue", want: `/etc/m.yaml line 1: there is no setting "colour-of-the-sky"`},
		"file, twice":              {file: "pprof: true\nnode: a\npprof: false", want: `/etc/m.yaml line 3: pprof is in line 1 already`},
		"file, names a file":       {file: "config-file: /x", want: `/etc/m.yaml line 1: config-file cannot be set in the file`},
		"file, no map":             {file: "- pprof", want: `/etc/m.yaml line 1: want settings, each as NAME: VALUE`},
		"file, no YAML":            {file: "a: b: c", want: `/etc/m.yaml: mapping values are not allowed in this context`},
		"overridden all the same":  {flag: "log-level=debug", environment: "MARGAY_LOG_LEVEL=loud", want: `environment variable MARGAY_LOG_LEVEL "loud": want debug, info, warn or error`},
		"several": {flag: "pprof=5", environment: "MARGAY_NODE=n,MARGAY_EVENTS=5", file: "pprof: 5", want: `--pprof "5": want true or false` + "\n" +
			`environment variable MARGAY_EVENTS "5": want true or false` + "\n" + `/etc/m.yaml line 1: pprof "5": want true or false`},
	} {
		t.Run(name, func(t *testing.T) {
			local := Local{Host: "n", Environment: strings.Split(test.environment, ",")}
			if flag, value, ok := strings.Cut(test.flag, "="); ok {
				local.Flags = []Flag{{flag, value}}
			}
			if test.file != "" {
				local.File = &File{Path: "/etc/m.yaml", Text: []byte(test.file)}
			}
			_, _, err := New(local)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(test.want, strings.ReplaceAll(err.Error(), "line 1: mapping", "mapping")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVariablesThatNobodyKnows(t *testing.T) {
	l, warnings, err := New(Local{Host: "n", Environment: []string{
		"MARGAY_LOGLEVEL=debug", "MARGAY_WHATEVER=1", "MARGAY_LOG_LEVEL=", "NOT_MARGAY_NODE=x", "PATH=/bin",
		"MARGAY_SERVICE_HOST=10.0.0.1", "MARGAY_SERVICE_PORT=9097", "MARGAY_SERVICE_PORT_METRICS=9097", "MARGAY_PORT=tcp://10.0.0.1:9097",
		"MARGAY_PORT_9097_TCP=tcp://10.0.0.1:9097", "MARGAY_PORT_9097_TCP_PROTO=tcp", "MARGAY_METRICS_PORT_9097_TCP_ADDR=10.0.0.1",
		"MARGAY_METRICS_SERVICE_HOST=10.0.0.1", "MARGAY_METRICS_PORT=tcp://10.0.0.1:9097",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"environment variable MARGAY_LOGLEVEL: there is no setting of that name; is MARGAY_LOG_LEVEL meant?",
		"environment variable MARGAY_WHATEVER: there is no setting of that name"}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Error(diff)
	}
	if v := value(t, l, "log-level"); v.Source != builtIn {
		t.Errorf("an empty variable counts: %+v", v)
	}
}

func TestShapesOfAFile(t *testing.T) {
	for name, test := range map[string]struct{ file, setting, want string }{
		"empty":                {"", "log-level", "info"},
		"comments":             {"# nothing\n", "log-level", "info"},
		"null":                 {"~", "log-level", "info"},
		"no value":             {"log-level:\n", "log-level", "info"},
		"number":               {"event-rate: 5", "event-rate", "5"},
		"hexadecimal":          {"mark-mask: 0x00e00000", "mark-mask", "0x00e00000"},
		"bool":                 {"pprof: true", "pprof", "true"},
		"quoted":               {"node: \"5\"", "node", "5"},
		"in another case":      {"default-endpoint-to-host-action: DROP", "default-endpoint-to-host-action", "Drop"},
		"a list":               {"map-size: [b=2, a=1]", "map-size", "a=1,b=2"},
		"a map":                {"map-size:\n  b: 2\n  a: 1", "map-size", "a=1,b=2"},
		"text":                 {"map-size: b=2, a=1", "map-size", "a=1,b=2"},
		"off":                  {"health-address: off", "health-address", "off"},
		"empty is off":         {"health-address: ''", "health-address", "off"},
		"by anchor":            {"node: &x y\ninstance: *x", "instance", "y"},
		"duration is printed":  {"timeout-other: 90m", "timeout-other", "1h30m"},
		"duration of an hour":  {"timeout-other: 60m", "timeout-other", "1h"},
		"duration of a minute": {"timeout-other: 60s", "timeout-other", "1m"},
	} {
		l, _, err := New(Local{Host: "n", File: &File{Path: "/etc/m.yaml", Text: []byte(test.file)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := value(t, l, test.setting).Text; got != test.want {
			t.Errorf("%s: %s is %q, want %q", name, test.setting, got, test.want)
		}
	}
}

func TestFlagsGivenSeveralTimes(t *testing.T) {
	l, _, err := New(Local{Host: "n", Flags: []Flag{{"map-size", "a=1"}, {"node", "x"}, {"map-size", "b=2"}, {"node", "y"}}})
	if err != nil {
		t.Fatal(err)
	}
	if sizes, node := value(t, l, "map-size").Text, value(t, l, "node").Text; sizes != "a=1,b=2" || node != "y" {
		t.Errorf("map-size %s, node %s", sizes, node)
	}
}

func TestWhichFileIsRead(t *testing.T) {
	variable := []string{"MARGAY_CONFIG_FILE=/from/environment"}
	for name, test := range map[string]struct {
		local Local
		want  string
		asked bool
	}{
		"nothing said": {Local{}, "/etc/margay/margay.yaml", false},
		"environment":  {Local{Environment: variable}, "/from/environment", true},
		"flag":         {Local{Environment: variable, Flags: []Flag{{"config-file", "/from/flag"}}}, "/from/flag", true},
	} {
		if path, asked := test.local.ConfigFile(); path != test.want || asked != test.asked {
			t.Errorf("%s: %s, asked for: %v", name, path, asked)
		}
	}
}

// FuzzFile: whatever is in a file, it is read or refused in lines that name it.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"", "a: b", "log-level: info\n", "map-size: {a: 1, b: [2]}", "&a a: *a", "<<: {pprof: true}", "? [a]\n: b", "\x00", "- - -", "pprof: !!null x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, _, err := New(Local{Host: "n", File: &File{Path: "/etc/m.yaml", Text: []byte(text)}})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "/etc/m.yaml") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for _, s := range Settings() {
			if again, err := find(s.Name).parse(s.Print(l.Config())); err != nil || again.text != s.Print(l.Config()) {
				t.Errorf("%q: %s is %q in force, which is read as %q, %v", text, s.Name, s.Print(l.Config()), again.text, err)
			}
		}
	})
}
