package validate_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	. "github.com/margay-project/margay/pkg/validate"
)

const podText = `apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web-1
  labels:
    app: web
    pcns.env: prod
    pcsa.admin: "true"
    projectcalico.org/namespace: kube-system
    projectcalico.org/serviceaccount: root
spec:
  nodeName: n1
  serviceAccountName: runner
  initContainers:
  - ports: [{name: side, containerPort: 9000, protocol: UDP}]
  containers:
  - ports:
    - {name: http, containerPort: 8080}
    - {name: http, containerPort: 8080}
    - {containerPort: 7000}
  - ports: [{name: sig, containerPort: 5060, protocol: SCTP}]
status:
  phase: Running
  podIP: 10.0.0.9
  podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}, {ip: "::ffff:10.0.0.1"}]
`

func TestPodIsAnEndpoint(t *testing.T) {
	want := model.EndpointUpdate{
		ID: model.WorkloadID("shop", "web-1"),
		Endpoint: &model.Endpoint{
			Node:  "n1",
			Iface: "cali" + "751425ce827", // echo -n shop.web-1 | sha1sum
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
			Labels: map[string]string{
				"app":                              "web",
				"projectcalico.org/namespace":      "shop",
				"projectcalico.org/orchestrator":   "k8s",
				"projectcalico.org/serviceaccount": "runner",
			},
			Profiles: []string{"kns.shop", "ksa.shop.runner"},
			Ports: []model.NamedPort{
				{Name: "http", Protocol: model.ProtoTCP, Port: 8080},
				{Name: "sig", Protocol: model.ProtoSCTP, Port: 5060},
				{Name: "side", Protocol: model.ProtoUDP, Port: 9000},
			},
		},
	}
	if diff := cmp.Diff(model.Update(want), parseUpdate(t, podText), compare); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
}

func TestPodWithoutServiceAccountRunsAsDefault(t *testing.T) {
	text := strings.Replace(podText, "  serviceAccountName: runner\n", "", 1)
	e := parseUpdate(t, text).(model.EndpointUpdate).Endpoint
	if e.Profiles[1] != "ksa.shop.default" || e.Labels["projectcalico.org/serviceaccount"] != "default" {
		t.Errorf("profiles %v, labels %v", e.Profiles, e.Labels)
	}
}

// An API server fills in both fields; a manifest may have the old one alone.
func TestPodWithTheOldFieldOfItsServiceAccount(t *testing.T) {
	for now, want := range map[string]string{
		"  serviceAccount: old\n":                               "old",
		"  serviceAccount: old\n  serviceAccountName: runner\n": "runner",
	} {
		e := parseUpdate(t, strings.Replace(podText, "  serviceAccountName: runner\n", now, 1)).(model.EndpointUpdate).Endpoint
		if e.Profiles[1] != "ksa.shop."+want || e.Labels["projectcalico.org/serviceaccount"] != want {
			t.Errorf("profiles %v, labels %v", e.Profiles, e.Labels)
		}
	}
}

func TestPodThatIsNoEndpoint(t *testing.T) {
	status := podText[strings.Index(podText, "status:"):]
	tests := map[string]struct {
		old, new string
		endpoint *model.Endpoint
	}{
		"not scheduled":                   {old: "nodeName: n1", new: "nodeName: ''"},
		"in the host's network":           {"nodeName: n1", "nodeName: n1\n  hostNetwork: true", &model.Endpoint{Node: "n1", HostNetwork: true}},
		"in the host's network, finished": {old: status, new: "  hostNetwork: true\nstatus: {phase: Failed}\n"},
		"succeeded":                       {old: "phase: Running", new: "phase: Succeeded"},
		"failed":                          {old: "phase: Running", new: "phase: Failed"},
		"without an address":              {old: status, new: "status: {phase: Pending}\n"},
		"deleted, address released by CNI": {old: "name: web-1", new: "name: web-1\n  deletionTimestamp: 2026-01-02T03:04:05Z\n" +
			"  annotations: {cni.projectcalico.org/podIP: ''}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(podText, tt.old, tt.new, 1)
			if text == podText {
				t.Fatal("the text is unchanged")
			}
			want := model.EndpointUpdate{ID: model.WorkloadID("shop", "web-1"), Endpoint: tt.endpoint}
			if diff := cmp.Diff(model.Update(want), kinds.Table(Pods{Annotator: CalicoAnnotator}).Parse("dir/a.yaml", []byte(text))[0].Updates[0], compare); diff != "" {
				t.Errorf("update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodBeingDeletedKeepsItsAddresses(t *testing.T) {
	text := strings.Replace(podText, "name: web-1", "name: web-1\n  deletionTimestamp: 2026-01-02T03:04:05Z\n"+
		"  annotations: {cni.projectcalico.org/podIP: ''}", 1) // which nobody reads unless told to
	got, alive := parseUpdate(t, text).(model.EndpointUpdate).Endpoint, parseUpdate(t, podText).(model.EndpointUpdate).Endpoint
	if got == nil || !slices.Equal(got.Addrs, alive.Addrs) || !got.Terminating || alive.Terminating {
		t.Errorf("%+v, before its deletion %+v", got, alive)
	}
}

func TestPodAddressSources(t *testing.T) {
	tests := map[string]struct {
		annotator           Annotator
		annotations, status string
		want                []string // nil: no endpoint
		confirmed           bool
	}{
		"podIPs before podIP":           {"", "", "podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.1}]", []string{"10.0.0.1"}, true},
		"podIP":                         {CalicoAnnotator, "cni.projectcalico.org/podIP: 10.0.0.3", "podIP: 10.0.0.2", []string{"10.0.0.2"}, true},
		"Calico's podIPs before podIP":  {CalicoAnnotator, "cni.projectcalico.org/podIP: 10.0.0.1/32, cni.projectcalico.org/podIPs: '10.0.0.2/32, fd00::1/128'", "", []string{"10.0.0.2", "fd00::1"}, false},
		"Calico's podIP":                {CalicoAnnotator, "cni.projectcalico.org/podIP: 10.0.0.1/32, vpc.amazonaws.com/pod-ips: 10.0.0.2", "", []string{"10.0.0.1"}, false},
		"AWS":                           {AWSAnnotator, "cni.projectcalico.org/podIP: 10.0.0.1/32, vpc.amazonaws.com/pod-ips: '10.0.0.2,10.0.0.3,10.0.0.2'", "", []string{"10.0.0.2", "10.0.0.3"}, false},
		"AWS says nothing to Calico":    {CalicoAnnotator, "vpc.amazonaws.com/pod-ips: 10.0.0.2", "", nil, false},
		"annotations that nobody reads": {NoAnnotator, "cni.projectcalico.org/podIPs: 10.0.0.2/32, vpc.amazonaws.com/pod-ips: 10.0.0.2", "", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {" + tt.annotations +
				"}}\nspec: {nodeName: n1}\nstatus: {" + tt.status + "}\n"
			docs := kinds.Table(Pods{Annotator: tt.annotator}).Parse("dir/a.yaml", []byte(text))
			if len(docs) != 1 || !docs[0].OK || len(docs[0].Problems) > 0 {
				t.Fatalf("%+v", docs)
			}
			var got []string
			if e := docs[0].Updates[0].(model.EndpointUpdate).Endpoint; e != nil {
				for _, a := range e.Addrs {
					got = append(got, a.String())
				}
				if e.Unconfirmed == tt.confirmed {
					t.Errorf("unconfirmed %v, want %v", e.Unconfirmed, !tt.confirmed)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodCannotOwnEveryAddress(t *testing.T) {
	for addr, what := range map[string]string{
		"0.0.0.0": "the unspecified address", "::": "the unspecified address",
		"127.0.0.1": "a loopback address", "::1": "a loopback address", "::ffff:127.0.0.1": "a loopback address",
		"224.0.0.1": "a multicast address", "ff02::1": "a multicast address",
		"169.254.1.1": "a link-local address", "fe80::1": "a link-local address",
		"255.255.255.255": "the broadcast address",
	} {
		for _, source := range []string{
			`status: {podIPs: [{ip: "` + addr + `"}]}`,
			`status: {podIP: "` + addr + `"}`,
		} {
			d := parseOne(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1}\n"+source+"\n")
			if e := d.Updates[0].(model.EndpointUpdate).Endpoint; e != nil {
				t.Errorf("%s: it is the endpoint %+v", source, e)
			}
			if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Reason, " is "+what+", which no pod can own; ignored") {
				t.Errorf("%s: problems %v, want one that says %s", source, d.Problems, what)
			}
		}
	}
	annotated := "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {cni.projectcalico.org/podIPs: '0.0.0.0/32,10.0.0.1/32'}}\n" +
		"spec: {nodeName: n1}\n"
	d := kinds.Table(Pods{Annotator: CalicoAnnotator}).Parse("dir/a.yaml", []byte(annotated))[0]
	if e := d.Updates[0].(model.EndpointUpdate).Endpoint; len(e.Addrs) != 1 || len(d.Problems) != 1 {
		t.Errorf("annotated: %+v, problems %v", e, d.Problems)
	}
}

func TestPodReportsWhatItCannotRead(t *testing.T) {
	text := `apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  nodeName: n1
  containers:
  - ports:
    - {name: a, containerPort: 70000}
    - {name: b, containerPort: 1, protocol: ICMP}
    - {name: c, containerPort: 65535}
status:
  podIPs:
  - ip: 10.0.0.300
  - ip: fe80::1%eth0
  - ip: 10.0.0.3
`
	d := parseOne(t, text)
	want := `dir/a.yaml:9: Pod default/p: warning: spec.containers[0].ports[0]: port 70000 is not in 1-65535; ignored
dir/a.yaml:10: Pod default/p: warning: spec.containers[0].ports[1]: protocol "ICMP" is not TCP, UDP or SCTP; ignored
dir/a.yaml:14: Pod default/p: warning: status.podIPs[0].ip: "10.0.0.300" is not an IP address; ignored
dir/a.yaml:15: Pod default/p: warning: status.podIPs[1].ip: "fe80::1%eth0" is not an IP address; ignored`
	if diff := cmp.Diff(want, problemText(d)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	e := d.Updates[0].(model.EndpointUpdate).Endpoint
	if len(e.Addrs) != 1 || e.Addrs[0] != netip.MustParseAddr("10.0.0.3") {
		t.Errorf("addresses %v", e.Addrs)
	}
	if len(e.Ports) != 1 || e.Ports[0].Name != "c" {
		t.Errorf("ports %v", e.Ports)
	}
}
