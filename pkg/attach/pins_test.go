package attach

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/link"
)

// Places and order are those of the names that links are pinned by, not of names written down a second time.
func TestPinsAreReadAsTheyAreMade(t *testing.T) {
	forward := hook{"judge-forward-ip4", link.NetfilterProtoIPv4, link.NetfilterInetForward, firstPriority, nil}.pin(firstPriority)
	out, in := tcxKey{7, egress}.pin(), tcxKey{7, ingress}.pin()
	for pin, want := range map[string]Place{
		out:          {7, "egress"},
		in:           {7, "ingress"},
		forward:      {0, forward},
		"7-sideways": {0, "7-sideways"},
		"x-egress":   {0, "x-egress"},
	} {
		if got := PlaceOf(pin); got != want {
			t.Errorf("%s: %+v, want %+v", pin, got, want)
		}
	}
	pins := []string{in, forward, out}
	slices.SortFunc(pins, DetachOrder)
	if want := []string{out, forward, in}; !slices.Equal(pins, want) {
		t.Errorf("detached in the order %q, want %q", pins, want)
	}
}
