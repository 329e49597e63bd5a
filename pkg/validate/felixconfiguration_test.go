package validate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

func TestFelixConfigurationIsReadFromBothGroups(t *testing.T) {
	for _, apiVersion := range []string{"crd.projectcalico.org/v1", "projectcalico.org/v3"} {
		docs := kinds.Parse("a.yaml", []byte(`
apiVersion: `+apiVersion+`
kind: FelixConfiguration
metadata:
  name: racks
  creationTimestamp: "2026-01-02T03:04:05Z"
spec:
  nodeSelector: rack == 'r1'
  logSeverityScreen: Debug
  vxlanPort: 4790
  goGCThreshold: -1
  ipv6Support: false
  reportingInterval: null
  bpfConntrackTimeouts: {tcpSynSent: 5s, icmpTimeout: Auto}
  bpfDSROptoutCIDRs: [10.0.0.0/8, 192.168.0.0/16]
  failsafeInboundHostPorts: [{protocol: tcp, port: 22}]
  ofSomeNewerVersion: {of: {a: shape}}
`))
		if len(docs) != 1 || !docs[0].OK || len(docs[0].Problems) > 0 {
			t.Fatalf("%s: %+v", apiVersion, docs)
		}
		u := docs[0].Updates[0].(model.ConfigurationUpdate)
		if u.Name != "racks" || u.Configuration.Created != 1767323045 || u.Configuration.NodeSelector.String() != `rack == "r1"` {
			t.Errorf("%s: %s, created %d, for %s", apiVersion, u.Name, u.Configuration.Created, u.Configuration.NodeSelector)
		}
		want := map[string]string{
			"logSeverityScreen": "Debug", "vxlanPort": "4790", "goGCThreshold": "-1", "ipv6Support": "false",
			"bpfConntrackTimeouts": "icmpTimeout=Auto,tcpSynSent=5s", "bpfDSROptoutCIDRs": "10.0.0.0/8,192.168.0.0/16",
			"failsafeInboundHostPorts": `{"protocol":"tcp","port":22}`, "ofSomeNewerVersion": `of={"a":"shape"}`,
		}
		if diff := cmp.Diff(want, u.Configuration.Values); diff != "" {
			t.Errorf("%s (-want +got):\n%s", apiVersion, diff)
		}
	}
}

func TestFelixConfigurationProblems(t *testing.T) {
	for name, test := range map[string]struct {
		object, spec string
		ok           bool
		want         string
	}{
		"nothing in it":          {"default", "{}", true, ""},
		"no spec":                {"default", "null", true, ""},
		"selector is none":       {"x", "{nodeSelector: 'a =='}", false, "a.yaml:5: FelixConfiguration x: rejected: spec.nodeSelector: "},
		"a long selector":        {"x", "{nodeSelector: \"rack in {" + strings.Repeat("'a-long-name', ", 200) + "}\"}", true, ""},
		"selector of wrong type": {"x", "{nodeSelector: 5}", false, "a.yaml:5: FelixConfiguration x: rejected: spec.nodeSelector: want a selector, in quotes"},
		"for nobody":             {"x", "{logSeverityScreen: Info}", true, "a.yaml:5: FelixConfiguration x: warning: spec.nodeSelector: without a nodeSelector, only objects named default or node.NODE apply to any node"},
		"selector and a name":    {"node.n1", "{nodeSelector: all()}", true, "a.yaml:5: FelixConfiguration node.n1: warning: spec.nodeSelector: ignored: the name node.n1 says which nodes the object is for"},
		"spec is a list":         {"default", "[]", false, "a.yaml:5: FelixConfiguration default: rejected: spec: array where an object is expected"},
		"written twice":          {"default", "{vxlanPort: 1, vxlanPort: 2}", false, ""},
		"name is none":           {"Default", "{}", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			docs := kinds.Parse("a.yaml", []byte("apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata:\n  name: "+
				test.object+"\nspec: "+test.spec+"\n"))
			if len(docs) != 1 || docs[0].OK != test.ok {
				t.Fatalf("%+v, want usable: %v", docs, test.ok)
			}
			got := ""
			if len(docs[0].Problems) > 0 {
				got = docs[0].Problems[0].String()
			}
			if !test.ok && got == "" {
				t.Error("rejected, and nothing says why")
			}
			if len(got) < len(test.want) || got[:len(test.want)] != test.want || (test.want == "") && test.ok && got != "" {
				t.Errorf("says %q, want %q", got, test.want)
			}
		})
	}
}
