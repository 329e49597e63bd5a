package verify

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// allowing is a policy in a kernel that allows everything.
type allowing struct{}

func (allowing) Row(uint32) uint32       { return 0 }
func (allowing) Destinations(Axis) []Run { return nil }
func (allowing) Sources(Axis) []Run      { return nil }
func (allowing) Judge(questions []Question) ([][]Answer, error) {
	answers := make([]Answer, len(questions))
	for i := range answers {
		answers[i].Allow = true
	}
	return [][]Answer{answers}, nil
}
func (allowing) Evaluators() []string       { return []string{"fake"} }
func (allowing) Texts() []string            { return []string{""} }
func (allowing) Kept(text string) string    { return text }
func (allowing) Where(int, Question) string { return "" }

// compareWith compares a policy with an answer that allows.
func compareWith(t *testing.T, p *model.DirectionPolicy) (Result, error) {
	t.Helper()
	return comparisonOf(t, p).Compare(p, []netip.Addr{policytest.Own4}, allowing{}, 1)
}

// comparisonOf compares a policy without sets, in a kernel that has no entries but the widest.
func comparisonOf(t *testing.T, p *model.DirectionPolicy) *Comparison {
	t.Helper()
	atoms := NewAtoms()
	atoms.AddPolicy(p)
	r := NewRegions(atoms, func() error { return nil })
	r.AddEntries([]Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0"), Class: 1}})
	r.Ask(policytest.Own4)
	pairs, err := r.Pairs()
	if err != nil {
		t.Fatal(err)
	}
	return &Comparison{Atoms: atoms, Pairs: pairs, Of: r.Of, Pause: func() error { return nil }}
}

// TestALargePolicyTakesBoundedMemory: a tenant's 60,000 rules, each for another port, are not verified instead of taking
// gigabytes.
func TestALargePolicyTakesBoundedMemory(t *testing.T) {
	tcp := model.ProtoTCP
	rules := make([]model.MatchRule, 60000)
	for i := range rules {
		rules[i] = model.MatchRule{Protocol: &tcp, Destination: model.Side{Ports: policytest.PortsOf(uint16(i), uint16(i))}}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := compareWith(t, policytest.OnePolicy(model.Ingress, rules...))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooMany) {
		t.Errorf("error %v, want %v", err, ErrTooMany)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 400<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}

// TestWhatAPolicyDeniesIsFound with a kernel that allows everything, and that ends early.
func TestWhatAPolicyDeniesIsFound(t *testing.T) {
	tcp := model.ProtoTCP
	rules := make([]model.MatchRule, 300)
	for i := range rules {
		rules[i] = model.MatchRule{Action: model.Deny, Protocol: &tcp, Destination: model.Side{Ports: policytest.PortsOf(uint16(2*i), uint16(2*i))}}
	}
	r, err := compareWith(t, policytest.OnePolicy(model.Ingress, rules...))
	if err != nil || len(r.Differences) != mostDifferences || !r.More {
		t.Errorf("%d differences, more: %v, %v", len(r.Differences), r.More, err)
	}
}
