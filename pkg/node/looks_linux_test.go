package node

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/attach"
)

func TestWherePolicyCannotFollowIPVSIsSaidInOneLineEach(t *testing.T) {
	for name, c := range map[string]struct {
		ipvs attach.IPVS
		want []string // a part of each
	}{
		"no IPVS":                     {attach.IPVS{}, nil},
		"kube-proxy's":                {attach.IPVS{KubeProxy: true, Services: 12, Conntrack: true}, nil},
		"ready, but without Services": {attach.IPVS{KubeProxy: true}, nil},
		"past conntrack":              {attach.IPVS{KubeProxy: true, Services: 12}, []string{"kube-ipvs0 and 12 virtual services"}},
		"direct routing":              {attach.IPVS{Services: 1, Direct: 2, Conntrack: true}, []string{"(2 of the backends"}},
		"both":                        {attach.IPVS{Services: 1, Direct: 1}, []string{"net.ipv4.vs.conntrack=1", "(1 of the backends"}},
	} {
		got := ipvsFindings(c.ipvs)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i, line := range got {
			if strings.Contains(line, "\n") || !strings.Contains(line, c.want[i]) {
				t.Errorf("%s: %q, want %q", name, line, c.want[i])
			}
		}
	}
}

// TestIPVSBesideIPTablesIsReported: kube-proxy may be given this mode after the agent has started.
func TestIPVSBesideIPTablesIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		ipvs attach.IPVS
		want string
	}{
		"no IPVS":      {attach.IPVS{Conntrack: true}, ""},
		"kube-proxy's": {attach.IPVS{KubeProxy: true, Services: 12, Conntrack: true}, "kube-ipvs0 and 12 virtual services"},
		"another's":    {attach.IPVS{Services: 1, Conntrack: true}, "(1 virtual service)"},
	} {
		got := strings.Join(ipvsBesideIPTables(c.ipvs), "\n")
		if strings.Contains(got, "\n") || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want one line with %q", name, got, c.want)
		}
	}
}
