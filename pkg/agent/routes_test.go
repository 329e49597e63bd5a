package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// Nothing is enforced before routes are known, and what endpoints own follows each report of them.
func TestRoutesDecideWhatEndpointsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := make(chan map[netip.Addr]string)
		store, dp := syncer.NewMemory(), dataplane.NewFake()
		l := New(complete(t, Options{Source: store, Graph: calc.New("n"), Dataplane: dp, Routes: routes,
			Log: slog.New(slog.DiscardHandler)}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		want := func(when string, want map[string]string) {
			t.Helper()
			synctest.Wait()
			got := map[string]string{}
			for id, policy := range dp.State().Endpoints {
				got[id.Name] = fmt.Sprint(policy.Addrs)
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		one, two := pod(1), pod(2)
		two.Endpoint.Addrs = one.Endpoint.Addrs
		store.Put(one, two, model.InSync{})
		want("before routes are known", map[string]string{})
		if l.Status().Ready {
			t.Error("ready before routes are known")
		}
		a := one.Endpoint.Addrs[0]
		routes <- map[netip.Addr]string{a: "cali2"}
		want("at first", map[string]string{"p1": "[]", "p2": "[10.0.0.1]"})
		routes <- map[netip.Addr]string{a: "cali1"}
		want("moved", map[string]string{"p1": "[10.0.0.1]", "p2": "[]"})
		routes <- nil
		want("gone", map[string]string{"p1": "[]", "p2": "[]"})
		close(routes) // the watch ends a moment before the loop does
		store.Put(pod(3))
		want("afterwards", map[string]string{"p1": "[]", "p2": "[]", "p3": "[]"})
	})
}
