package explain_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// walker is Walk as an engine of the corpus.
type walker struct {
	graph *calc.Graph
	nodes map[string]*model.Node
}

func (*walker) Name() string { return "explain" }

func (w *walker) Load(updates []model.Update) error {
	w.graph, w.nodes = calc.New(""), map[string]*model.Node{}
	for _, u := range updates {
		if n, ok := u.(model.NodeUpdate); ok && n.Node != nil {
			w.nodes[n.Name] = n.Node
		}
	}
	w.graph.Apply(append(slices.Clone(updates), model.InSync{}))
	w.graph.Flush()
	return nil
}

func (w *walker) Judge(id model.EndpointID, d model.Direction, p model.Packet) (model.Verdict, error) {
	v, err := w.JudgeForwarded(id, d, p)
	if ep, _ := w.graph.FindEndpoint(id); err == nil && v.By.Point != model.AtSelf && d == model.Ingress {
		if n := w.nodes[ep.Node]; n != nil && slices.Contains(n.Addrs, p.Src) {
			return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtHost, Direction: d}}, nil
		}
	}
	return v, err
}

func (w *walker) JudgeForwarded(id model.EndpointID, d model.Direction, p model.Packet) (model.Verdict, error) {
	policy, ok := w.graph.LocalEndpoint(id)
	if !ok {
		return model.Verdict{}, fmt.Errorf("no policy of %s", id)
	}
	ep, _ := w.graph.FindEndpoint(id)
	if slices.Contains(ep.Addrs, p.Src) && slices.Contains(ep.Addrs, p.Dst) {
		return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtSelf, Direction: d}}, nil
	}
	if d == model.Egress {
		return explain.Walk(policy.Egress, p, w.graph).Verdict, nil
	}
	return explain.Walk(policy.Ingress, p, w.graph).Verdict, nil
}

func TestWalkGivesTheVerdictsOfTheCorpus(t *testing.T) {
	cases, err := corpus.Load("../../test/corpus")
	if err != nil {
		t.Fatal(err)
	}
	corpus.Run(t, cases, &walker{})
}

func TestWalkGivesTheVerdictsOfTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		var reference corpus.Oracle
		var engine walker
		if err := reference.Load(updates); err != nil {
			t.Fatal(err)
		}
		if err := engine.Load(updates); err != nil {
			t.Fatal(err)
		}
		for _, p := range sample(corpus.DrawProbes(t, updates), 300) {
			want, err := reference.Judge(p.Endpoint, p.Direction, p.Packet)
			if err != nil {
				t.Fatal(err)
			}
			got, err := engine.Judge(p.Endpoint, p.Direction, p.Packet)
			if err != nil {
				t.Fatal(err)
			}
			// All passes and logs, not only as many as the kernel keeps.
			if diff := cmp.Diff(corpus.Describe(want), corpus.Describe(got)); diff != "" {
				text, err := corpus.Format("Random counter-example (§5, §7).", updates, p.Line(want))
				if err != nil {
					t.Fatal(err)
				}
				t.Fatalf("(-oracle +explain):\n%s\n%s", diff, text)
			}
		}
	})
}

// TestPartOfTheDatastoreExplainsAsTheWholeDoes: an agent explains from what its graph says is around both ends.
func TestPartOfTheDatastoreExplainsAsTheWholeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		whole, graph := explain.NewState(updates), calc.New("n1")
		graph.Apply(append(slices.Clone(updates), model.InSync{}))
		graph.Flush()
		for i, p := range sample(corpus.DrawProbes(t, updates), 10) {
			pkt := p.Packet
			var ends []model.EndpointID
			if i%2 == 0 && p.Direction == model.Ingress {
				ends = append(ends, p.Endpoint)
			}
			want, err := whole.Packet(pkt)
			if err != nil {
				t.Fatal(err)
			}
			got, err := explain.NewState(graph.Around(ends, []netip.Addr{pkt.Src, pkt.Dst}).Objects()).Packet(pkt)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b model.Packet) bool { return a == b }),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.IgnoreUnexported(explain.Mismatch{}), cmp.AllowUnexported(explain.End{})); diff != "" {
				t.Fatalf("%+v (-whole +part):\n%s", pkt, diff)
			}
		}
	})
}

// TestExplainJudgesBothLegsAsTheOracleDoes asks by addresses, as a person does, and compares the whole flow.
func TestExplainJudgesBothLegsAsTheOracleDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		state, cluster := explain.NewState(updates), oracle.New(updates)
		for _, p := range sample(corpus.DrawProbes(t, updates), 50) {
			pkt := p.Packet
			res, err := state.Packet(pkt)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(pkt, res.Packet, cmp.Comparer(func(a, b model.Packet) bool { return a == b })); diff != "" {
				t.Fatalf("another packet is explained (-asked +explained):\n%s", diff)
			}
			flow := cluster.Flow(pkt)
			if res.Allow != flow.Allow() {
				t.Fatalf("%+v: allow is %v, by the oracle %v", pkt, res.Allow, flow.Allow())
			}
			compareLeg(t, "egress", flow.Egress, res.Egress)
			compareLeg(t, "ingress", flow.Ingress, res.Ingress)
			if (res.Egress == nil || res.Ingress == nil) == (res.Note == "") {
				t.Fatalf("%+v: egress judged %v, ingress judged %v, note %q", pkt, res.Egress != nil, res.Ingress != nil, res.Note)
			}
		}
	})
}

// sample takes about n of the probes, evenly.
func sample(probes []corpus.Probe, n int) []corpus.Probe {
	var some []corpus.Probe
	for i := 0; i < len(probes); i += 1 + len(probes)/n {
		some = append(some, probes[i])
	}
	return some
}

func compareLeg(t *rapid.T, leg string, want *model.Verdict, got *explain.Trace) {
	judged := want != nil && want.By.Point != model.AtSelf && want.By.Point != model.AtHost
	if judged != (got != nil) {
		t.Fatalf("%s: judged is %v, by the oracle %v", leg, got != nil, judged)
	}
	if !judged {
		return
	}
	if diff := cmp.Diff(corpus.Describe(*want), corpus.Describe(got.Verdict)); diff != "" {
		t.Fatalf("%s (-oracle +explain):\n%s", leg, diff)
	}
}
