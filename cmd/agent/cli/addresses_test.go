package cli

import (
	"testing"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/health"
)

// Settings accept the addresses that a server can have, and no other: a running agent would end by one.
func TestSettingsAcceptTheAddressesOfServers(t *testing.T) {
	for address, want := range map[string]bool{
		":81": true, "127.0.0.1:81": true, "0.0.0.0:65535": true, "localhost:81": true, "[::1]:81": true, "[::]:81": true, "[]:81": true,
		"[127.0.0.1]:81": true, "foo:81": false, "[foo]:81": false, "::1:81": false, "[::1]": false, "[::1:81": false, "::1]:81": false, ":0": false,
		":65536": false, ":-1": false, ":http": false, ":": false, "[fe80::1%eth0]:81": false, " 127.0.0.1:81": false, "127.0.0.1/8:81": false,
		"127.0.0.01:81": false, "[::1]x:81": false, "[[::1]]:81": false,
	} {
		for _, setting := range []string{"health-address", "metrics-address"} {
			_, _, err := config.New(config.Local{Host: "n", Flags: []config.Flag{{Name: setting, Value: address}}})
			if (err == nil) != want {
				t.Errorf("--%s %q: %v, want accepted: %v", setting, address, err, want)
			}
		}
		if _, err := health.Address(address); (err == nil) != want {
			t.Errorf("a server at %q: %v, want accepted: %v", address, err, want)
		}
	}
}
