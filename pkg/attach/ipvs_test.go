package attach

import "testing"

func TestVirtualServicesAreCounted(t *testing.T) {
	const heading = "IP Virtual Server version 1.2.1 (size=4096)\n" +
		"Prot LocalAddress:Port Scheduler Flags\n" +
		"  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	for _, tc := range []struct {
		name, text   string
		want, direct int
	}{
		{"no ip_vs in the kernel", "", 0, 0},
		{"no service", heading, 0, 0},
		{"kube-proxy's, both families", heading +
			"TCP  0A600001:01BB rr\n" +
			"  -> C0A80002:192B      Masq    1      0          0\n" +
			"UDP  0A60000A:0035 rr\n" +
			"TCP  [fd00:0000:0000:0000:0000:0000:0000:000a]:0050 rr\n" +
			"  -> [fd01:0000:0000:0000:0000:0000:0000:0002]:1F90      Masq    1      0          0\n", 3, 0},
		{"by firewall mark, and SCTP", heading + "FWM  00000001 wlc\nSCTP 0A600001:9C40 rr persistent 10800\n", 2, 0},
		{"not by NAT", heading + "TCP  0A600001:01BB rr\n" +
			"  -> C0A80002:01BB      Route   1      0          0\n" +
			"  -> C0A80003:01BB      Tunnel  1      0          0\n" +
			"  -> C0A80001:01BB      Local   1      0          0\n", 1, 2},
	} {
		if got, direct := virtualServices(tc.text); got != tc.want || direct != tc.direct {
			t.Errorf("%s: %d and %d, want %d and %d", tc.name, got, direct, tc.want, tc.direct)
		}
	}
}

func TestIPVSInWords(t *testing.T) {
	for want, v := range map[string]IPVS{
		"no IPVS":                  {},
		"the interface kube-ipvs0": {KubeProxy: true},
		"1 virtual service":        {Services: 1},
		"the interface kube-ipvs0 and 2 virtual services": {KubeProxy: true, Services: 2},
	} {
		if got := v.String(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
		if v.Translates() != (v != IPVS{}) {
			t.Errorf("%+v: translates %t", v, v.Translates())
		}
	}
}

func TestTheInterfaceOfKubeProxyIsFound(t *testing.T) {
	room(t)
	found, err := FindIPVS()
	if err != nil || found.Translates() {
		t.Fatalf("a node without IPVS: %v, %v", found, err)
	}
	veth(t, kubeIPVS) // its name is what tells it
	if found, err = FindIPVS(); err != nil || !found.KubeProxy {
		t.Errorf("with kube-proxy's interface: %v, %v", found, err)
	}
}
