package node

import (
	"errors"
	"testing"
)

func TestCheckSaysWhichDataplaneIsTaken(t *testing.T) {
	fails := errors.New("fails")
	checks := []Result{{Name: "TCX links", Dataplane: "bpf"}, {Name: "iptables", Dataplane: "iptables"}, {Name: "marks"}}
	for name, c := range map[string]struct {
		configured            string
		bpf, kernel, iptables error
		want                  string
		problems              int
	}{
		"all":                   {"auto", nil, nil, nil, "bpf", 2},
		"bpf":                   {"auto", nil, nil, fails, "bpf", 2},
		"iptables":              {"auto", fails, fails, nil, "iptables", 2},
		"mistake":               {"auto", fails, nil, nil, "", 3},
		"neither":               {"auto", fails, fails, fails, "", 3},
		"iptables, though both": {"iptables", nil, nil, nil, "iptables", 2},
		"iptables, not bpf":     {"iptables", fails, nil, nil, "iptables", 2},
		"bpf, which cannot run": {"bpf", fails, fails, nil, "bpf", 2},
		"record":                {"record", fails, fails, fails, "record", 1},
	} {
		n := Report{Checks: checks}
		if n.choose(c.configured, c.bpf, c.kernel, c.iptables); n.Dataplane != c.want || n.Reason == "" || n.Problems() != c.problems {
			t.Errorf("%s: %q because of %q with %d problems, want %q with %d", name, n.Dataplane, n.Reason, n.Problems(), c.want, c.problems)
		}
	}
}
