package table

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

func TestTableAndInterpreterAgreeWithTheDefinitionOfPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, p, n := policytest.DrawWorld(t), policytest.DrawPolicy(t), policytest.NewNumbers()
		prog, err := match.Expand(p, w, n)
		if err != nil {
			t.Fatal(err)
		}
		byAddr, all := w.ClassesOf(prog, n)
		table, wide := Build(prog, classes.ListOf(all), Limits{}), Build(prog, classes.ListOf(all), Limits{Wide: true})
		if table.Interpreted() || wide.Interpreted() {
			t.Fatal("the policy is interpreted; it should have a table")
		}
		reached := prog.Reached()
		for range 20 {
			pkt := policytest.DrawPacket(t, w, p.Direction)
			remote := pkt.Src
			if p.Direction == model.Egress {
				remote = pkt.Dst
			}
			c := byAddr[remote]
			interpreted := prog.Interpret(c, pkt)
			if got := table.Eval(c.ID, pkt); got != interpreted {
				t.Fatalf("packet %+v of class %+v: table says %+v, interpreter %+v\n%s", pkt, c, got, interpreted, policytest.Dump(prog, n))
			}
			if got := wide.Eval(c.ID, pkt); got != interpreted {
				t.Fatalf("packet %+v of class %+v: wide table says %+v, interpreter %+v\n%s", pkt, c, got, interpreted, policytest.Dump(prog, n))
			}
			if i := int(interpreted.Rule); i < len(reached) && !reached[i] {
				t.Fatalf("packet %+v is decided by entry %d, which is said to be never reached\n%s", pkt, i, policytest.Dump(prog, n))
			}
			want := w.Verdict(p, pkt)
			if d := cmp.Diff(policytest.Truncated(want), prog.Verdict(interpreted)); d != "" {
				t.Fatalf("packet %+v: wrong verdict (-want +got):\n%s\n%s", pkt, d, policytest.Dump(prog, n))
			}
			if int(interpreted.Nlogs) != len(want.Logged) || int(interpreted.Npasses) != len(want.Passed) {
				t.Fatalf("packet %+v: %d logs and %d passes, want %d and %d", pkt, interpreted.Nlogs, interpreted.Npasses,
					len(want.Logged), len(want.Passed))
			}
		}
	})
}
