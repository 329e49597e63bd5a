package cli

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/calc"
)

// What the graph believes of the maps of addresses, unless it is given their size.
func TestMapsOfAddressesHaveTheEntriesThatTheGraphReckonsWith(t *testing.T) {
	spec, err := bpf.LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapIp4Net, bpf.MargayMapIp6Host, bpf.MargayMapIp6Net} {
		if n := spec.Maps[name].MaxEntries; n != calc.AddressEntries {
			t.Errorf("map %s has %d entries, want %d", name, n, calc.AddressEntries)
		}
	}
}
