package flowring

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/flows"
)

func TestRecordsHaveTheStagedVerdict(t *testing.T) {
	d := &decoder{names: map[uint32]string{1: "default/np/shop/a#ingress[0]", 2: "staged:ingress:default/snp/shop/b#end-of-tier"}}
	e := &bpf.Event{RuleId: 1, StagedId: 2, Flags: uint8(bpf.MargayEventFlagsEVENT_INGRESS | bpf.MargayEventFlagsEVENT_STAGED)}
	want := &flows.Staged{Verdict: flows.Deny, Policy: "default/snp/shop/b", Rule: "default/snp/shop/b#end-of-tier"}
	if diff := cmp.Diff(want, d.record(e, time.Now()).Staged); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.Reason, want.Verdict = uint16(bpf.MargayDropReasonDROP_POLICY), flows.Allow
	if diff := cmp.Diff(want, d.record(e, time.Now()).Staged); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
	e.Flags = uint8(bpf.MargayEventFlagsEVENT_INGRESS)
	if s := d.record(e, time.Now()).Staged; s != nil {
		t.Errorf("without the flag: %+v", s)
	}
}
