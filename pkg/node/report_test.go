package node

import (
	"errors"
	"testing"
)

func TestCheckSaysWhichDataplaneAutoTakes(t *testing.T) {
	fails := errors.New("fails")
	checks := []Result{{Name: "TCX links", Dataplane: "bpf"}, {Name: "iptables", Dataplane: "iptables"}, {Name: "marks"}}
	for name, c := range map[string]struct {
		bpf, kernel, iptables error
		want                  string
		problems              int
	}{
		"all":      {nil, nil, nil, "bpf", 2},
		"bpf":      {nil, nil, fails, "bpf", 2},
		"iptables": {fails, fails, nil, "iptables", 2},
		"mistake":  {fails, nil, nil, "", 3},
		"neither":  {fails, fails, fails, "", 3},
	} {
		n := Report{Checks: checks}
		if n.choose(c.bpf, c.kernel, c.iptables); n.Dataplane != c.want || n.Reason == "" || n.Problems() != c.problems {
			t.Errorf("%s: %q because of %q with %d problems, want %q with %d", name, n.Dataplane, n.Reason, n.Problems(), c.want, c.problems)
		}
	}
}
