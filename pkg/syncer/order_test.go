package syncer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// What is there comes before what has gone, and an object that another one of the datastore gives now has not gone.
func TestDeletionsComeLast(t *testing.T) {
	for _, test := range []struct{ changed, deletions, want []model.Update }{
		{nil, nil, nil},
		{[]model.Update{tier("a", 1)}, nil, []model.Update{tier("a", 1)}},
		{nil, []model.Update{noTier("a")}, []model.Update{noTier("a")}},
		{[]model.Update{tier("a", 1), tier("b", 1)}, []model.Update{noTier("c"), noTier("a"), noTier("d")},
			[]model.Update{tier("a", 1), tier("b", 1), noTier("c"), noTier("d")}},
		{[]model.Update{tier("a", 1)}, []model.Update{noTier("a")}, []model.Update{tier("a", 1)}},
		{[]model.Update{policy(model.KindNetworkPolicy, "a")}, []model.Update{noPolicyOf("shop")}, []model.Update{policy(model.KindNetworkPolicy, "a"), noPolicyOf("shop")}},
	} {
		if diff := cmp.Diff(test.want, DeletionsLast(test.changed, test.deletions)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
