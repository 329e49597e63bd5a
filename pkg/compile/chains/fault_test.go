package chains

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// brittle are rows that cannot be read any more.
type brittle struct{ rows }

var errBrittle = errors.New("unreadable")

func (brittle) leaf(uint16) (*leaf, error) { return nil, errBrittle }
func (brittle) common(int) (*leaf, error)  { return nil, errBrittle }

// A slot whose rows cannot be read denies, and says so: whoever has made it refuses the endpoint.
func TestRowsThatCannotBeReadDeny(t *testing.T) {
	tcp := model.ProtoTCP
	ports := &model.PortMatch{}
	for p := range uint16(40) {
		ports.Ranges = append(ports.Ranges, model.PortRange{Lo: 100 + 2*p, Hi: 100 + 2*p})
	}
	policy := policytest.OnePolicy(model.Ingress, model.MatchRule{Action: model.Allow, Protocol: &tcp, Destination: model.Side{Ports: ports}})
	program, err := match.Expand(policy, &policytest.World{Own: []netip.Addr{policytest.Own4}}, policytest.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	marks, err := NewMarks(DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	known := []classes.Class{{ID: classes.None4, Family: 4}, {ID: 5, Family: 4}}
	for _, interpreted := range []bool{false, true} {
		built := table.Build(program, classes.ListOf(known), table.Limits{Interpret: interpreted})
		s, err := NewSlot(1, built, known, &Options{Marks: marks, Names: Names{World: WorldA}, Family: 4, Shape: Legacy()})
		if err != nil {
			t.Fatal(err)
		}
		allows := func() bool {
			for _, c := range s.Chains() {
				if strings.Contains(strings.Join(c.Rules, "\n"), "-g mgyA-ok") {
					return true
				}
			}
			return false
		}
		if !allows() || s.Err() != nil {
			t.Fatalf("interpreted: %v: a sound slot allows nothing, or says %v: %v", interpreted, s.Err(), s.Chains())
		}
		s.rows.rows = brittle{s.rows.rows}
		if allows() || !errors.Is(s.Err(), errBrittle) {
			t.Errorf("interpreted: %v: a slot whose rows cannot be read allows, or says %v", interpreted, s.Err())
		}
	}
}
