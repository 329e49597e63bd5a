package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// Policies that are refused in the end cost less than one that is not, however many there are. Before, each found as much as a namespace may,
// and that was kept until the last one was refused: 30 took 1.5 s and 560 MB with each change of a policy of the namespace.
func TestPoliciesThatAreRefusedFindNothing(t *testing.T) {
	const prefixes, refused = 20_000, 20
	g, dp := market(t, 0, 3*prefixes)
	large := found("evil", "s", "yes", 0, 1)
	for i := range prefixes {
		large.Set.Nets = append(large.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), 32))
	}
	flushed(t, g, dp, large)
	policy := func(name string, rules int) model.PolicyUpdate {
		p := selecting("evil", name, 0, rules)
		for i := range p.Policy.Ingress {
			p.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("found == 'yes' && other != '%s-%d'", name, i))
		}
		return p
	}
	n := 0
	one := testutil.LeastCPUTime(t, func() {
		n++
		flushed(t, g, dp, policy(fmt.Sprint("one-", n), 1), model.Absent(policy(fmt.Sprint("one-", n-1), 0)))
	})
	wantRefused(t, g, "", "")
	var list []model.Update
	for i := range refused {
		list = append(list, policy(fmt.Sprint("refused-", i), 10))
	}
	flushed(t, g, dp, append(list, model.Absent(policy(fmt.Sprint("one-", n), 0)))...)
	many := testutil.LeastCPUTime(t, func() {
		n++
		flushed(t, g, dp, policy(fmt.Sprint("other-", n), 0))
	})
	if got := strings.Fields(refusedOf(t, g, "evil/m")); len(got) != refused {
		t.Errorf("refused: %v", got)
	}
	t.Logf("one policy with one selector: %s, %d that are refused: %s", one, refused, many)
	if many > one {
		t.Errorf("%d policies that are refused cost %s, and one that is not %s", refused, many, one)
	}
}
