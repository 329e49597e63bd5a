package plan

import (
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// checkShadows compares what is bound for the shadows of endpoints with the verdict of their policies once all staged ones are
// enforced. Where that differs from the verdict of the policy in force, a staged policy has the credit.
func checkShadows(t *rapid.T, k *kernel, now *cluster, probes []probe) {
	for id, e := range now.endpoints {
		_, bound := k.bound[id.Shadow()]
		_, enforced := k.bound[id]
		if has := len(staged.Keys(e.Ingress))+len(staged.Keys(e.Egress)) > 0; enforced && has != bound {
			t.Fatalf("%v: staged policies %t, bound for them %t", id, has, bound)
		}
	}
	for _, p := range probes {
		e := now.endpoints[p.id]
		if e == nil || p.final == nil || len(staged.Keys(policyOf(e, p.d))) == 0 {
			continue
		}
		got, bound, err := k.judge(p.id.Shadow(), p.d, p.pkt)
		if err != nil {
			t.Fatalf("%v: %v", p.id.Shadow(), err)
		}
		if _, enforced := k.bound[p.id]; !bound {
			if enforced {
				t.Fatalf("%v is not bound", p.id.Shadow())
			}
			continue
		}
		as := staged.Enforce(policyOf(e, p.d), staged.All)
		want := policytest.Truncated(together(e, now, now).Verdict(as, p.pkt))
		if got.Allow != want.Allow {
			t.Fatalf("%v %v packet %+v: staged verdict %+v, want %+v", p.id, p.d, p.pkt, got, want)
		}
		checkCredit(t, policyOf(e, p.d), &p, got.By, want.By, p.final.Allow != want.Allow)
	}
}

// checkCredit: what decides in the shadow is what decides once staged policies are enforced, or a staged policy is named that
// comes before it.
func checkCredit(t *rapid.T, policy *model.DirectionPolicy, p *probe, got, want model.RuleID, differs bool) {
	isStaged := false
	for _, key := range staged.Keys(policy) {
		isStaged = isStaged || got.Policy == key
	}
	plain := got
	plain.Staged = false
	switch {
	case got.Staged && !isStaged:
		t.Fatalf("%v packet %+v: %v has the credit, which is not staged", p.id, p.pkt, got)
	case differs && !got.Staged:
		t.Fatalf("%v packet %+v: the verdict differs by %v, and %v has the credit", p.id, p.pkt, want, got)
	case got.Point != model.AtBehind && plain != want:
		t.Fatalf("%v packet %+v: decided by %v, want %v", p.id, p.pkt, got, want)
	}
}
