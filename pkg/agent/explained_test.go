package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// misjudged are refused addresses that the rules of an endpoint tell apart.
func misjudged(prefixes ...string) dataplane.Misjudged {
	m := dataplane.Misjudged{Kinds: []bool{true}}
	for _, p := range prefixes {
		m.Refused = append(m.Refused, dataplane.RefusedAddr{Prefix: netip.MustParsePrefix(p), Cause: errors.New("full")})
	}
	return m
}

// The list of endpoints and an explanation say so if the newest policies of a pod are not in force. They say nothing of other pods, nor of a
// pod while only another one waits.
func TestAPodWhosePolicyIsNotInForceIsSaidToBeSo(t *testing.T) {
	g := calc.New("n1")
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop)) {
		g.Apply(doc.Updates)
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	id, other := g.LocalEndpoints()[0].ID, g.LocalEndpoints()[1].ID
	ends := []netip.Addr{netip.MustParseAddr("10.0.9.8"), netip.MustParseAddr("10.0.9.9")}
	const locked = "its newest policy is not in force yet: another process holds the lock"
	for _, test := range []struct {
		what      string
		status    dataplane.EndpointStatus
		condition string
		error     string // of the row
		note      string // of an explanation
	}{
		{"enforced", dataplane.EndpointStatus{Condition: dataplane.Enforced}, "", "", ""},
		{"another pod's plan fails", dataplane.EndpointStatus{Condition: dataplane.Pending}, "", "", ""},
		{"its plan fails", dataplane.EndpointStatus{Condition: dataplane.Pending, NotInForce: locked}, inspect.ConditionPending, locked, locked},
		{"an address is refused", dataplane.EndpointStatus{Condition: dataplane.Enforced, Misjudged: misjudged("10.0.0.7/32")}, inspect.ConditionPending,
			"its newest policy is not in force yet for 10.0.0.7: full", ""},
		{"an address of the question is refused", dataplane.EndpointStatus{Condition: dataplane.Enforced, Misjudged: misjudged("10.0.0.7/32", "10.0.9.9/32")},
			inspect.ConditionPending, "its newest policy is not in force yet for 10.0.0.7: full", "its newest policy is not in force yet for 10.0.9.9: full"},
		{"an address is refused, and its plan fails", dataplane.EndpointStatus{Condition: dataplane.Pending, NotInForce: locked,
			Misjudged: misjudged("10.0.9.9/32")}, inspect.ConditionPending, locked, locked},
		{"large", dataplane.EndpointStatus{Condition: dataplane.Pending, Reason: "large"}, inspect.ConditionPending, "large", "large"},
		{"over a limit", dataplane.EndpointStatus{Condition: dataplane.Held, Reason: "limit"}, "", "limit", "limit"},
		{"over a limit, and newer changes wait", dataplane.EndpointStatus{Condition: dataplane.Held, Reason: "limit", NotInForce: locked},
			inspect.ConditionPending, "limit; " + locked, "limit; " + locked},
		{"without an interface", dataplane.EndpointStatus{Condition: dataplane.NoInterface, Reason: "waits"}, "", "waits", ""},
		{"without an interface, and its plan fails", dataplane.EndpointStatus{Condition: dataplane.NoInterface, Reason: "waits", NotInForce: locked},
			inspect.ConditionPending, "waits; " + locked, locked},
	} {
		test.status.ID = id
		states := []dataplane.EndpointStatus{test.status, {ID: other, Condition: dataplane.Enforced}}
		rows := endpointRows(g.LocalEndpoints(), g, states, plane{})
		if rows[0].Condition != test.condition || rows[0].Error != test.error {
			t.Errorf("%s: condition %q, error %q; want %q, %q", test.what, rows[0].Condition, rows[0].Error, test.condition, test.error)
		}
		if rows[1].Condition != "" || rows[1].Error != "" {
			t.Errorf("%s: of the other pod is said %q, %q", test.what, rows[1].Condition, rows[1].Error)
		}
		note, want := strings.Join(notEnforced(states, []model.EndpointID{id, other}, ends), "\n"), ""
		if test.note != "" {
			want = id.String() + ": " + test.note
		}
		if note != want {
			t.Errorf("%s: an explanation has the note %q, want %q", test.what, note, want)
		}
	}
}
