package config

import (
	"strings"
	"testing"
)

func TestEtcdEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"https://a:2379":                          "https://a:2379",
		"https://b:2379, https://a:2379/":         "https://a:2379,https://b:2379",
		"http://10.0.0.1:2379,http://[fd00::1]:1": "http://10.0.0.1:2379,http://[fd00::1]:1",
		"":                             "",
		",":                            "want https://HOST:PORT",
		"a:2379":                       "want https://HOST:PORT",
		"https://a":                    "want https://HOST:PORT",
		"https://:2379":                "want https://HOST:PORT",
		"https://a:2379/x":             "want https://HOST:PORT",
		"unix:///run/etcd":             "want https://HOST:PORT",
		"https://me:secret@a:2379":     "do not belong here",
		"https://a:2379,http://b:2379": "https for all servers",
	} {
		got, err := parseEndpoints(text)
		if err == nil && printEndpoints(got) != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}

// Variables that Felix and Calico's clients have are read, Margay's own count more.
func TestVariablesOfOthers(t *testing.T) {
	for _, tt := range []struct{ env, want, source string }{
		{"ETCD_ENDPOINTS=http://c:1", "http://c:1", "environment variable ETCD_ENDPOINTS"},
		{"ETCD_ENDPOINTS=http://c:1 FELIX_EtcdEndpoints=http://f:1", "http://f:1", "environment variable FELIX_EtcdEndpoints"},
		{"MARGAY_ETCD_ENDPOINTS=http://m:1 ETCD_ENDPOINTS=http://c:1 FELIX_ETCDENDPOINTS=http://f:1", "http://m:1", "environment variable MARGAY_ETCD_ENDPOINTS"},
		{"FELIX_ETCDENDPOINTS= ETCD_ENDPOINTS=http://c:1", "http://c:1", "environment variable ETCD_ENDPOINTS"},
		{"ETCD_UNKNOWN=1 FELIX_BPFENABLED=true", "", "built-in default"},
	} {
		l, warnings, err := New(Local{Host: "n", Environment: strings.Fields(tt.env)})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", tt.env, err, warnings)
			continue
		}
		for _, v := range l.Values() {
			if v.Setting == "etcd-endpoints" && (v.Text != tt.want || v.Source != tt.source) {
				t.Errorf("%s: %q of %q, want %q of %q", tt.env, v.Text, v.Source, tt.want, tt.source)
			}
		}
	}
	if _, _, err := New(Local{Host: "n", Environment: []string{"ETCD_ENDPOINTS=c:1"}}); err == nil || !strings.Contains(err.Error(), "environment variable ETCD_ENDPOINTS") {
		t.Errorf("a value that is not valid: %v", err)
	}
}

func TestWhatGoesTogetherForEtcd(t *testing.T) {
	secure := []string{"https://a:2379"}
	for _, tt := range []struct {
		e    Etcd
		want string
	}{
		{Etcd{Endpoints: secure, CAFile: "ca", CertFile: "c", KeyFile: "k", User: "u", PasswordFile: "p"}, ""},
		{Etcd{Endpoints: []string{"http://a:2379"}}, ""},
		{Etcd{}, "needs --etcd-endpoints"},
		{Etcd{Endpoints: secure, CertFile: "c"}, "--etcd-key-file go together"},
		{Etcd{Endpoints: secure, PasswordFile: "p"}, "--etcd-password-file go together"},
		{Etcd{Endpoints: []string{"http://a:2379"}, CAFile: "ca"}, "need https"},
	} {
		if err := tt.e.Check(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.e, err, tt.want)
		}
	}
}
