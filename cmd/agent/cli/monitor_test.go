//go:build linux

package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
)

// testMonitor: what is tried shows up, with the rule that decided.
func (n *node) testMonitor(t *testing.T) {
	o := showOptions{instanceFlags: instanceFlags{instance: "live", bpffs: n.bpffs, socket: n.socket}}
	maps, err := o.openMaps()
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- monitor(ctx, w, maps, &o)
		w.Close()
	}()
	go func() {
		n.reach(80)
		n.reach(81)
	}()
	want := map[string]bool{
		"allow ingress of shop/db": false, ":80 tcp  by default/knp/shop/db#ingress[0]": false,
		"deny  ingress of shop/db": false, ":81 tcp  by default/knp/shop/db#end-of-tier": false,
		"allow egress  of shop/web": false, "profile/kns.shop#egress[0]": false,
	}
	missing := len(want)
	var lines []string
	for s := bufio.NewScanner(r); missing > 0 && s.Scan(); {
		lines = append(lines, s.Text())
		for words, seen := range want {
			if !seen && strings.Contains(s.Text(), words) {
				want[words] = true
				missing--
			}
		}
	}
	cancel()
	for words, seen := range want {
		if !seen {
			t.Errorf("no line with %q among\n%s", words, strings.Join(lines, "\n"))
		}
	}
	// It may be writing one more line; nobody reads that, but it is no error.
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("monitor ended with %v", err)
	}
}

func TestEventsAreToldInWords(t *testing.T) {
	row := eventRow{Endpoint: "shop/db", Direction: "ingress", Verdict: "deny", Rule: "default/gnp/p#ingress[1]", Protocol: "tcp",
		Logged: []string{"default/gnp/p#ingress[0]"}, Passed: []string{"sec/gnp/s#ingress[2]"}, Note: "revoked", Suppressed: 3}
	for _, words := range []string{"deny  ingress of shop/db", "by default/gnp/p#ingress[1]", "logged by default/gnp/p#ingress[0]",
		"passed by sec/gnp/s#ingress[2]", "(revoked)", "[3 not shown before it]"} {
		if !strings.Contains(row.text(), words) {
			t.Errorf("no %q in %q", words, row.text())
		}
	}
	e := bpf.Event{Reason: uint16(bpf.MargayDropReasonDROP_NO_TABLE),
		Flags: uint8(bpf.MargayEventFlagsEVENT_REJUDGED | bpf.MargayEventFlagsEVENT_TRANSLATED)}
	if got, want := noteOf(&e), "judged again, after translation, compiled policy incomplete or missing"; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
}
