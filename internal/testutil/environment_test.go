package testutil

import "testing"

// Variables of the agent are read, too: a test that asks for one is not to get nothing.
func TestGetenv(t *testing.T) {
	t.Setenv("MARGAY_IPTABLES_BACKEND", "legacy")
	given["MARGAY_E2E_OF_THIS_TEST"] = "1"
	defer delete(given, "MARGAY_E2E_OF_THIS_TEST")
	for name, want := range map[string]string{"MARGAY_IPTABLES_BACKEND": "legacy", "MARGAY_E2E_OF_THIS_TEST": "1", "MARGAY_E2E_NO_SUCH": ""} {
		if got := Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
