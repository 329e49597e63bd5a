package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
)

// largeSet is a network set of a tenant with so many addresses from one on.
func largeSet(first, n int) model.NetworkSetUpdate {
	s := &model.NetworkSet{Labels: map[string]string{"set": "large"}}
	for i := first; i < first+n; i++ {
		s.Nets = append(s.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "t", Name: "large"}, Set: s}
}

func policyFrom(namespace, of string) model.PolicyUpdate {
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: "p"}, Policy: &model.Policy{Tier: model.TierDefault,
		Selector: selector.All(), AppliesIngress: true, Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: selector.Equal("set", of)}}}}}
}

// A network set of very many addresses changes in parts if rules refer to it. Others' changes come between, and what it may replace goes when
// it is there.
func TestOthersPassANetworkSetThatChangesInParts(t *testing.T) {
	const size = 20_000
	run(t, func(t *testing.T, r *rig) {
		old := largeSet(size, 1)
		old.ID.Name = "old"
		r.put(pod(1), policyFrom("t", "large"), largeSet(0, size), old)
		r.store.Sync()
		synctest.Wait()
		r.passes.take()
		r.put(largeSet(size, size), policyFrom("u", "other"), model.Absent(old), policyFrom("t", "other"))
		deleted, other, own, complete := -1, -1, -1, -1
		passes := r.passes.take()
		for i, out := range passes {
			for _, u := range out.Batch.Updates {
				switch u := u.(type) {
				case model.NetworkSetUpdate:
					if u.Set == nil {
						deleted = i
					}
				case model.PolicyUpdate:
					if u.Key.Namespace == "u" {
						other = i
					} else {
						own = i
					}
				}
			}
			if out.Flush == nil {
				continue
			}
			for _, s := range out.Flush.Changes.Sets {
				if n := len(s.Added) + len(s.Removed); n > 2*syncer.MostAddresses && !s.Gone {
					t.Errorf("pass %d changes %d members at once", i, n)
				}
			}
			if out.Complete && complete < 0 {
				complete = i
			}
		}
		if parts := 2 * size / syncer.MostAddresses; other != 0 || deleted < parts || own < parts || complete < parts {
			t.Errorf("of %d passes, those of another's policy %d, the deletion %d, the namespace's policy %d, and the first that is complete %d; parts %d",
				len(passes), other, deleted, own, complete, parts)
		}
	})
}

// While the dataplane fails, changes in parts do not keep the loop busy, and then they go on.
func TestANetworkSetThatChangesInPartsWaitsForTheDataplane(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), policyFrom("t", "large"))
		r.store.Sync()
		synctest.Wait()
		r.dp.Set(dataplane.FakeSettings{ApplyErr: errors.New("the kernel is away"), Failures: 1 << 20})
		r.put(largeSet(0, 100_000), policyFrom("t", "large"))
		r.passes.take()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(r.passes.take()); n > 2*100_000/syncer.MostAddresses { // the graph has each part once
			t.Errorf("%d passes while nothing can be enforced", n)
		}
		r.dp.Set(dataplane.FakeSettings{})
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, members := range r.dp.State().Sets {
			if len(members) == 100_000 {
				return
			}
		}
		t.Error("the set is not complete")
	})
}

// A question is answered after the pass that is under way, however many parts there are.
func TestQuestionsPassANetworkSetThatChangesInParts(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		const each = 50 * time.Millisecond
		r.put(pod(1), policyFrom("t", "large"))
		r.store.Sync()
		synctest.Wait()
		r.dp.Set(dataplane.FakeSettings{Delay: each})
		r.store.Put(largeSet(0, 131_072))
		for i := range 20 {
			began := time.Now()
			if err := r.Query(t.Context(), func(View) {}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > each {
				t.Errorf("question %d was answered after %v", i, took)
			}
			time.Sleep(each / 2)
		}
	})
}

// partial is a dataplane with an interface that cannot be programmed. All else is enforced.
type partial struct {
	*dataplane.Fake
	fails *atomic.Bool
}

func (p partial) Apply(ctx context.Context, ch model.Changes) error {
	if err := p.Fake.Apply(ctx, ch); err != nil || !p.fails.Load() {
		return err
	}
	return errors.New("endpoint t/x on calix: attach programs: refused")
}

// While one endpoint fails and everything else is enforced, changes in parts go on as otherwise: deletions of others wait for them.
func TestANetworkSetThatChangesInPartsDoesNotWaitForOneEndpoint(t *testing.T) {
	var fails atomic.Bool
	runWith(t, func(dp *dataplane.Fake) dataplane.Dataplane { return partial{dp, &fails} }, func(t *testing.T, r *rig) {
		r.put(pod(1), policyFrom("t", "large"), policyFrom("u", "other"))
		r.store.Sync()
		synctest.Wait()
		fails.Store(true)
		r.passes.take()
		began := time.Now()
		r.put(largeSet(0, 100_000), model.Absent(policyFrom("u", "other")))
		time.Sleep(time.Hour)
		for _, out := range r.passes.take() {
			for _, u := range out.Batch.Updates {
				if p, is := u.(model.PolicyUpdate); !is || p.Policy != nil {
					continue
				}
				if took := out.Started.Sub(began); took > 10*time.Second {
					t.Errorf("the deletion of another's policy waits for %v", took)
				}
				return
			}
		}
		t.Error("the policy is not deleted")
	})
}

// Labels of a ServiceAccount as which very many pods run change in parts. Others' changes come between, and policies of the same namespace when all
// pods have the new labels.
func TestOthersPassLabelsThatVeryManyPodsInherit(t *testing.T) {
	const pods, policies = 2000, 8
	account := func(value string) model.ProfileUpdate {
		return model.ProfileUpdate{Name: "ksa.t.a", Profile: &model.Profile{Labels: map[string]string{"set": value}}}
	}
	run(t, func(t *testing.T, r *rig) {
		updates := []model.Update{pod(1), account("none")}
		for i := range pods {
			u := pod(1000 + i)
			u.Endpoint.Node, u.Endpoint.Profiles = "other", []string{"kns.t", "ksa.t.a"}
			updates = append(updates, u)
		}
		for i := range policies {
			p := policyFrom("t", "large")
			p.Key.Name = fmt.Sprint("p", i)
			p.Policy.Ingress[0].Source.Selector = selector.And(selector.Equal("set", "large"), selector.NotEqual("app", fmt.Sprint(i)))
			updates = append(updates, p)
		}
		r.put(updates...)
		r.store.Sync()
		synctest.Wait()
		r.passes.take()
		r.put(account("large"))
		passes := r.passes.take()
		if parts := pods * policies / syncer.MostAddresses; len(passes) < parts {
			t.Fatalf("%d passes, want %d", len(passes), parts)
		}
		// The same once more, with others that come while it is under way.
		r.dp.Set(dataplane.FakeSettings{Delay: 50 * time.Millisecond})
		r.store.Put(account("none"))
		time.Sleep(60 * time.Millisecond) // the first part is made
		r.put(account("large"), policyFrom("u", "other"), policyFrom("t", "other"), account("other"))
		time.Sleep(time.Minute)
		synctest.Wait()
		other, own, again, complete := -1, -1, -1, -1
		for i, out := range r.passes.take() {
			for _, u := range out.Batch.Updates {
				switch u := u.(type) {
				case model.PolicyUpdate:
					if u.Key.Namespace == "u" {
						other = i
					} else {
						own = i
					}
				case model.ProfileUpdate:
					again = i
				}
			}
			if out.Complete && complete < 0 {
				complete = i
			}
		}
		if parts := pods * policies / syncer.MostAddresses; other > 2 || own < parts || again < parts {
			t.Errorf("passes of another's policy: %d, of the namespace's policy: %d, of labels that are newer: %d, the first that is complete: %d; parts: %d",
				other, own, again, complete, parts)
		}
		found := 0
		for _, members := range r.dp.State().Sets {
			found += len(members)
		}
		if found != pods {
			t.Errorf("selectors find %d pods, want each by its newest label", found)
		}
	})
}
