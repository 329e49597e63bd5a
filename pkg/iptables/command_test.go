package iptables

import "testing"

// A command that has ended well has not failed because its output is read late, as on a machine without free CPU time. Here another process
// keeps it open for longer than a scheduler makes one wait.
func TestACommandWhoseOutputComesLateHasNotFailed(t *testing.T) {
	c := command{path: "/bin/sh", args: []string{"-c", "echo done; sleep 2 & exit 0"}}
	if out, err := c.run(t.Context(), ""); err != nil || out != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
}
