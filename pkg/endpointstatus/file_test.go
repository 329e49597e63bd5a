package endpointstatus

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func id(namespace, name string) model.EndpointID {
	return model.WorkloadID(namespace, name)
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

var web = Endpoint{ID: id("shop", "web"), Iface: "cali0", Addrs: addrs("10.0.0.1", "fd00::1")}

func TestFilesHaveTheNamesAndContentThatCalicosPluginExpects(t *testing.T) {
	got, err := files([]Endpoint{
		web,
		{ID: id("shop", "db-0"), Iface: "cali1", MAC: "02:00:00:00:00:01", Addrs: addrs("10.0.0.2")},
		{ID: id("shop", "a.b"), Iface: "cali2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"k8s shop%2Fweb eth0":  `{"ifaceName":"cali0","ipv4Nets":["10.0.0.1/32"],"ipv6Nets":["fd00::1/128"]}`,
		"k8s shop%2Fdb-0 eth0": `{"ifaceName":"cali1","mac":"02:00:00:00:00:01","ipv4Nets":["10.0.0.2/32"]}`,
		"k8s shop%2Fa.b eth0":  `{"ifaceName":"cali2"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyFilesOfPodsAreTakenForOurs(t *testing.T) {
	for name, want := range map[string]bool{
		"k8s shop%2Fweb eth0":       true,
		"k8s shop/web eth0":         false,
		"k8s shop%2Fweb eth1":       false,
		"k8s shop%2Fweb":            false,
		"k8s shop%2Fweb eth0 ":      false,
		"k8s shop%2fweb eth0":       false,
		"k8s %zz eth0":              false,
		"openstack shop%2Fweb eth0": false,
		temporary:                   false,
		"README":                    false,
		"":                          false,
	} {
		if got := isFileName(name); got != want {
			t.Errorf("isFileName(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestDifferenceIsWhatIsNewChangedOrGone(t *testing.T) {
	there := map[string]string{"same": "1", "changed": "1", "gone": "1"}
	wanted := map[string]string{"same": "1", "changed": "2", "new": "1"}
	write, remove := difference(wanted, there)
	if diff := cmp.Diff([]string{"changed", "new"}, write); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"gone"}, remove); diff != "" {
		t.Error(diff)
	}
}
