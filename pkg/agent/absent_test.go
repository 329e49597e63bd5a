package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

func TestAnAgentAllOfWhosePodsWaitForTheirInterfacesIsNotReady(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{}})
		r.put(pod(1))
		r.put(pod(2))
		r.put(model.InSync{})
		time.Sleep(absentAfter / 2)
		r.wantClosed(t, "interfaces may be about to be made", 0, true, "")
		time.Sleep(absentAfter)
		wrong := `no interface begins with "cali", and all 2 pods of this node wait for theirs: is --interface-prefix right?`
		r.wantClosed(t, "they are not made", 0, false, wrong)
		for _, c := range r.health.Components() {
			if c.Name == "policy" && c.Detail != wrong {
				t.Errorf("component policy says %q, want %q", c.Detail, wrong)
			}
		}
		r.put(pod(3))
		time.Sleep(5 * time.Second)
		r.wantClosed(t, "another pod waits, too", 0, false, "all 3 pods")
		if n := strings.Count(r.log.String(), "no pod of this node has its interface"); n != 1 {
			t.Errorf("%d lines in the log, want 1:\n%s", n, &r.log)
		}

		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{"cali1": 11}})
		r.put(pod(4)) // a change has the states of endpoints read again
		time.Sleep(5 * time.Second)
		r.wantClosed(t, "one pod has its interface", 0, true, "")
		if !strings.Contains(r.log.String(), "pods of this node have their interfaces") {
			t.Errorf("the log does not say that it is over:\n%s", &r.log)
		}
	})
}

func TestANodeWithoutPodsWaitsForNoInterface(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{}})
		other := pod(1)
		other.Endpoint.Node = "x"
		r.put(other)
		r.put(model.InSync{})
		time.Sleep(2 * absentAfter)
		r.wantClosed(t, "the only pod is another node's", 0, true, "")
		r.put(pod(2))
		time.Sleep(absentAfter / 2)
		r.wantClosed(t, "a pod is being made", 0, true, "")
	})
}

func TestWhichPodsCountAsWaitingForTheirInterfaces(t *testing.T) {
	waits := dataplane.EndpointStatus{ID: podID(1), Condition: dataplane.NoInterface}
	for _, tc := range []struct {
		name   string
		states []dataplane.EndpointStatus
		want   int
	}{
		{"no pods", nil, 0},
		{"one", []dataplane.EndpointStatus{waits}, 1},
		{"another's policy cannot be made", []dataplane.EndpointStatus{waits, {ID: podID(2), Condition: dataplane.Held}}, 2},
		{"another has its interface", []dataplane.EndpointStatus{waits, {ID: podID(2), Condition: dataplane.Pending, Ifindex: 7}}, 0},
		{"another has its interface, and fails", []dataplane.EndpointStatus{waits, {ID: podID(2), Condition: dataplane.Failed, Ifindex: 7}}, 0},
		{"endpoints of the host", []dataplane.EndpointStatus{{ID: model.HostID("n"), Condition: dataplane.NoInterface}}, 0},
		{"beside an endpoint of the host", []dataplane.EndpointStatus{waits, {ID: model.HostID("n"), Condition: dataplane.Enforced, Ifindex: 2}}, 1},
		{"a dataplane that enforces nothing", []dataplane.EndpointStatus{{ID: podID(1), Condition: dataplane.Pending}}, 0},
	} {
		if got := withoutInterface(tc.states); got != tc.want {
			t.Errorf("%s: %d pods, want %d", tc.name, got, tc.want)
		}
	}
}

func TestTheMessageAboutAbsentInterfacesSaysWhatThereIs(t *testing.T) {
	a := &absentInterfaces{node: "n", prefix: "eni"}
	for _, tc := range []struct {
		pods, interfaces int
		want             string
	}{
		{1, 0, `no interface begins with "eni", and the only pod of this node waits for its own: is --interface-prefix right?`},
		{5, 2, `none of the interfaces that begin with "eni" (2) is a pod's of this node, and all 5 pods of this node wait for theirs: is --interface-prefix right?`},
	} {
		if got := a.describe(tc.pods, tc.interfaces); got != tc.want {
			t.Errorf("%d pods, %d interfaces: %q, want %q", tc.pods, tc.interfaces, got, tc.want)
		}
	}
}
