package calico

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/model"
)

func TestNodes(t *testing.T) {
	many := strings.Repeat(`{"address": "10.0.0.1"},`, maxAddrs) + `{"address": "10.0.0.2"}`
	for _, tt := range []struct{ spec, want, problem string }{
		{`{"addresses": [{"address": "10.0.0.1/24", "type": "CalicoNodeIP"}, {"address": "192.0.2.1"}],
			"bgp": {"ipv4Address": "10.0.0.1/24", "ipv6Address": "fd00::1"}, "ipv4VXLANTunnelAddr": "10.9.0.1"}`, "10.0.0.1 192.0.2.1 fd00::1", ""},
		{`{}`, "", ""},
		{`{"addresses": [{"address": "host1"}, {"address": "10.0.0.1"}], "bgp": {"ipv6Address": "fe80::1%eth0"}}`, "10.0.0.1",
			`warning: spec.addresses[0].address: "host1" is not an address; ignored`},
		{`{"addresses": [` + many + `]}`, "rejected", "has 65 entries; the limit is 64"},
	} {
		o := &Node{}
		if err := json.Unmarshal([]byte(`{"metadata": {"name": "n1", "labels": {"rack": "r1"}}, "spec": `+tt.spec+`}`), o); err != nil {
			t.Fatal(err)
		}
		u, problems, ok := ConvertNode(o)
		if tt.problem == "" && len(problems) > 0 || tt.problem != "" && (len(problems) == 0 || !strings.Contains(problems[0].String(), tt.problem)) {
			t.Errorf("%s: %v, want %q", tt.spec, problems, tt.problem)
		}
		if ok == (tt.want == "rejected") {
			t.Errorf("%s: ok %t", tt.spec, ok)
		}
		if !ok {
			continue
		}
		want := &model.Node{Labels: map[string]string{"rack": "r1"}}
		for _, a := range strings.Fields(tt.want) {
			want.Addrs = append(want.Addrs, netip.MustParseAddr(a))
		}
		if diff := cmp.Diff(want, u.Node, cmpopts.EquateComparable(netip.Addr{})); diff != "" || u.Name != "n1" {
			t.Errorf("%s: %s (-want +got):\n%s", tt.spec, u.Name, diff)
		}
	}
}
