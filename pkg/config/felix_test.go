package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// TestValuesOfFelix: what one FelixConfiguration means, and what is said about it.
func TestValuesOfFelix(t *testing.T) {
	const in = "FelixConfiguration default, field "
	for name, test := range map[string]struct {
		values   map[string]string
		setting  string
		want     string
		problems []string
	}{
		"log level":           {map[string]string{"logSeverityScreen": "Warning"}, "log-level", "warn", nil},
		"log level, any case": {map[string]string{"logSeverityScreen": "fAtAl"}, "log-level", "error", nil},
		"log level, trace":    {map[string]string{"logSeverityScreen": "Trace"}, "log-level", "debug", nil},
		"empty is not set":    {map[string]string{"logSeverityScreen": ""}, "log-level", "info", nil},
		"log level, invalid": {map[string]string{"logSeverityScreen": "Loud"}, "log-level", "info",
			[]string{in + `logSeverityScreen "Loud": want Trace, Debug, Info, Warning, Error or Fatal; log-level stays info`}},
		"to the host, drop":   {map[string]string{"defaultEndpointToHostAction": "DROP"}, "default-endpoint-to-host-action", "Drop", nil},
		"to the host, accept": {map[string]string{"defaultEndpointToHostAction": "Accept"}, "default-endpoint-to-host-action", "Accept", nil},
		"to the host, return": {map[string]string{"defaultEndpointToHostAction": "RETURN"}, "default-endpoint-to-host-action", "Accept", nil},
		"to the host, invalid": {map[string]string{"defaultEndpointToHostAction": "Reject"}, "default-endpoint-to-host-action", "Accept",
			[]string{in + `defaultEndpointToHostAction "Reject": want Drop, Return or Accept; default-endpoint-to-host-action stays Accept`}},
		"prefix": {map[string]string{"interfacePrefix": "tap"}, "interface-prefix", "tap", nil},
		"prefixes": {map[string]string{"interfacePrefix": "tap,cali,eni"}, "interface-prefix", "tap",
			[]string{in + `interfacePrefix "tap,cali,eni": only one prefix is supported: "tap" is used, "cali,eni" is not`}},
		"prefix, too long": {map[string]string{"interfacePrefix": "muchtoolong"}, "interface-prefix", "cali",
			[]string{in + `interfacePrefix "muchtoolong": want 1 to 8 characters; interface-prefix stays cali`}},
		"encap, both":       {map[string]string{fieldIPIPAllowed: "true", fieldVXLANAllowed: "true"}, "allow-encap-from-workloads", "true", nil},
		"encap, both not":   {map[string]string{fieldIPIPAllowed: "false", fieldVXLANAllowed: "false"}, "allow-encap-from-workloads", "false", nil},
		"encap, one is not": {map[string]string{fieldIPIPAllowed: "false"}, "allow-encap-from-workloads", "false", nil},
		"encap, one is": {map[string]string{fieldVXLANAllowed: "true"}, "allow-encap-from-workloads", "false",
			[]string{in + fieldVXLANAllowed + ` "true": ` + fieldVXLANAllowed + " and " + fieldIPIPAllowed +
				" must be the same: there is one setting for both; allow-encap-from-workloads stays false"}},
		"port": {map[string]string{"vxlanPort": "8472"}, "vxlan-port", "8472", nil},
		"port, invalid": {map[string]string{"vxlanPort": "99999"}, "vxlan-port", "4789",
			[]string{in + `vxlanPort "99999": want a port, 0 to 65535; vxlan-port stays 4789`}},
		"timeout":         {map[string]string{fieldTimeouts: "tcpEstablished=2h,tcpSynSent=5s"}, "timeout-tcp-established", "2h", nil},
		"timeout, auto":   {map[string]string{fieldTimeouts: "tcpEstablished=Auto"}, "timeout-tcp-established", "1h", nil},
		"timeout, absent": {map[string]string{fieldTimeouts: "tcpSynSent=5s"}, "timeout-tcp-established", "1h", nil},
		"timeout, invalid": {map[string]string{fieldTimeouts: "tcpEstablished=long,udpTimeout=3s"}, "timeout-tcp-established", "1h",
			[]string{in + fieldTimeouts + ` "tcpEstablished=long,udpTimeout=3s": want a duration such as 90s, 10m or 1h; timeout-tcp-established stays 1h`}},
		"timeout, unknown": {map[string]string{fieldTimeouts: "dccp=1s,udpTimeout=3s"}, "timeout-udp", "3s",
			[]string{in + fieldTimeouts + ` "dccp=1s,udpTimeout=3s": "dccp" is not a timeout; want ` + strings.Join(timeoutKeys, ", ")}},
		"status":           {map[string]string{"endpointStatusPathPrefix": "/var/run/calico"}, "endpoint-status-dir", "/var/run/calico/endpoint-status", nil},
		"status, relative": {map[string]string{"endpointStatusPathPrefix": "run"}, "endpoint-status-dir", "off", []string{in + `endpointStatusPathPrefix "run": want a path that begins with /; endpoint-status-dir stays off`}},
		"spoofing":         {map[string]string{"workloadSourceSpoofing": "Any"}, "workload-source-spoofing", "Any", nil},
		"no spoofing":      {map[string]string{"workloadSourceSpoofing": "disabled"}, "workload-source-spoofing", "Disabled", nil},
		"some spoofing": {map[string]string{"workloadSourceSpoofing": "Some"}, "workload-source-spoofing", "Disabled",
			[]string{in + `workloadSourceSpoofing "Some": want Disabled or Any; workload-source-spoofing stays Disabled`}},
		"not used":         {map[string]string{"healthPort": "9099", "bpfMapSizeConntrack": "5", "iptablesRefreshInterval": "5s"}, "resync-every", "1m30s", nil},
		"of a newer Felix": {map[string]string{"quantumRouting": "Enabled", "healthPortals": "5"}, "log-level", "info", nil},
		"misspelt": {map[string]string{"logSeverityScren": "Debug"}, "log-level", "info",
			[]string{in + "logSeverityScren is not a known field; is logSeverityScreen meant?"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := (&sources{local: Local{Host: "n1"}, updates: []model.Update{configuration("default", test.values)}}).layers(t)
			if got := value(t, l, test.setting).Text; got != test.want {
				t.Errorf("%s is %s, want %s", test.setting, got, test.want)
			}
			var problems []string
			for _, p := range l.Problems() {
				problems = append(problems, p.String())
			}
			if diff := cmp.Diff(test.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFieldsAreMergedAsFelixDoes: of two fields that belong together each comes from the highest object that has it.
func TestFieldsAreMergedAsFelixDoes(t *testing.T) {
	in := newSources()
	in.updates = append(in.updates, configuration("default", map[string]string{fieldIPIPAllowed: "true", fieldVXLANAllowed: "false"}),
		configuration("node.n1", map[string]string{fieldVXLANAllowed: "true"}))
	l := in.layers(t)
	if v := value(t, l, "allow-encap-from-workloads"); v.Text != "true" || v.Source != sourceOf("node.n1", Setting{Felix: []string{fieldVXLANAllowed}}) {
		t.Errorf("%+v", v)
	}
	if ps := l.Problems(); len(ps) != 1 || ps[0].Object != "default" {
		t.Errorf("problems %v, want one of the object that is at odds with itself", ps)
	}
}

func TestWhatIsNotSupportedIsReportedWhereItIsInForce(t *testing.T) {
	in := newSources()
	in.updates = append(in.updates, configuration("default", map[string]string{"nftablesFilterDenyAction": "Reject", "iptablesFilterDenyAction": "Reject"}),
		configuration("racks", map[string]string{"nftablesFilterDenyAction": "Reject"}),
		configuration("node.n1", map[string]string{"iptablesFilterDenyAction": "Drop"}))
	ps := in.layers(t).Problems()
	if len(ps) != 1 || ps[0].Object != "racks" || ps[0].Field != "nftablesFilterDenyAction" || !ps[0].Ignored {
		t.Errorf("%v", ps)
	}
}

func TestEveryFieldOfFelixIsUsedOrHasAReason(t *testing.T) {
	fields := FelixFields()
	for i, f := range fields {
		if i > 0 && fields[i-1].Field >= f.Field {
			t.Errorf("%s and %s are not in order", fields[i-1].Field, f.Field)
		}
		if len(f.Settings) == 0 && f.Why == "" {
			t.Errorf("%s is not used, and nothing says why", f.Field)
		}
		for _, group := range unused {
			for name := range strings.FieldsSeq(group.fields) {
				if _, ok := unsupported[name]; name == f.Field && (len(f.Settings) > 0 || ok) {
					t.Errorf("%s is both used and not used", name)
				}
			}
		}
	}
	if len(fields) < 150 {
		t.Errorf("%d fields", len(fields))
	}
}
