package config

import (
	"strings"
	"testing"
)

func TestSettingsThatExcludeEachOtherAreRefused(t *testing.T) {
	for _, tc := range []struct {
		flags string // joined by spaces
		want  string // the error; empty: none
	}{
		{"health-address=:9000 metrics-address=:9001", ""},
		{"health-address=off metrics-address=off", ""},
		{"health-address=127.0.0.1:9000 metrics-address=10.0.0.1:9000", ""},
		{"health-address=127.0.0.1:9000 metrics-address=[::1]:9000", ""},
		{"health-address=0.0.0.0:9000 metrics-address=[::1]:9000", ""},
		{"health-address=127.0.0.1:9000 metrics-address=127.0.0.1:9000",
			`--health-address "127.0.0.1:9000" and --metrics-address "127.0.0.1:9000" are the same: one of the two servers could not listen; give one another port, or off`},
		{"metrics-address=127.0.0.1:9096", `health-address "127.0.0.1:9096" (built-in default) and --metrics-address "127.0.0.1:9096" are the same: `},
		{"health-address=localhost:9000 metrics-address=127.0.0.1:09000", `and --metrics-address "127.0.0.1:09000" are the same: `},
		{"health-address=:9000 metrics-address=127.0.0.1:9000", "are the same: "},
		{"health-address=0.0.0.0:9000 metrics-address=127.0.0.1:9000", "are the same: "},
		{"health-address=[::1]:9000 metrics-address=[::]:9000", "are the same: "},
		{"health-address=127.0.0.1:9000 metrics-address=[::]:9000", "are the same: "},
		{"pprof=true", ""},
		{"health-address=off", ""},
		{"pprof=true health-address=off", `--pprof "true" has no effect with --health-address "off": profiles are served at the health address; set that, or leave out pprof`},
		{"verify-every=0s", ""},
		{"verify-every=10s", ""},
		{"verify-every=1ns", `--verify-every "1ns": want 0s, or a duration of at least 10s`},
		{"endpoint-status-dir=/run/x", ""},
		{"endpoint-status-dir=OFF", ""},
		{"endpoint-status-dir=run/x", `--endpoint-status-dir "run/x": want a path that begins with /, or off`},
	} {
		local := Local{Host: "n"}
		for _, f := range strings.Fields(tc.flags) {
			name, value, _ := strings.Cut(f, "=")
			local.Flags = append(local.Flags, Flag{name, value})
		}
		_, _, err := New(local)
		if got := errorText(err); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.flags, got, tc.want)
		}
	}
}

func TestAFileWhoseSettingsExcludeEachOtherIsNotUsed(t *testing.T) {
	l, _, err := New(Local{Host: "n", Flags: []Flag{{"pprof", "true"}}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := l.SetFile(&File{Path: "f", Text: []byte("health-address: off\nlog-level: warn\n")}); err == nil || c.Effect != Unchanged {
		t.Errorf("%+v, %v", c, err)
	}
	if c := l.Config(); c.HealthAddress == "" || c.LogLevel != "info" {
		t.Errorf("the file is in force: %+v", c)
	}
	if err := l.FileErr(); err == nil || !strings.Contains(err.Error(), `health-address "off" (f line 1)`) {
		t.Errorf("why it is not used: %v", err)
	}
}
