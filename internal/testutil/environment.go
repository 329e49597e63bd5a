package testutil

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// given are the variables that say how tests are to run. They are taken out of the environment when the process starts:
// agents that tests start, or are, would say that they know no such setting.
var given = collect("MARGAY_REQUIRE_", "MARGAY_E2E_", "MARGAY_CLUSTER_")

func collect(prefixes ...string) map[string]string {
	taken := map[string]string{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				taken[name] = value
				_ = os.Unsetenv(name) // fails for impossible names only
			}
		}
	}
	return taken
}

// Getenv is os.Getenv as the environment was when the process started: the variables that say how tests are to run,
// MARGAY_REQUIRE_…, MARGAY_E2E_… and MARGAY_CLUSTER_…, are no longer there. Others it reads as they are.
func Getenv(name string) string {
	if value, ok := given[name]; ok {
		return value
	}
	return os.Getenv(name)
}

// Number is Getenv of a number; otherwise if it is not set. What is none fails the test.
func Number(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
