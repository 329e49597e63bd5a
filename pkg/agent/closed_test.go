package agent

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// wantClosed asserts how many interfaces the agent shows as closed, whether it is ready, and what it says (empty: nothing).
func (r *rig) wantClosed(t *testing.T, when string, closed int, ready bool, said string) {
	t.Helper()
	synctest.Wait()
	var v View
	if err := r.Query(t.Context(), func(now View) { v = now }); err != nil {
		t.Fatal(err)
	}
	if len(v.closed) != closed {
		t.Errorf("%s: closed interfaces %v, want %d", when, v.closed, closed)
	}
	if r.health.Ready() != ready {
		t.Errorf("%s: ready %t: %+v", when, !ready, r.health.Components())
	}
	text := ""
	for _, p := range v.node {
		text += p.String()
	}
	if said == "" && text != "" || !strings.Contains(text, said) {
		t.Errorf("%s: problems %q, want %q", when, text, said)
	}
}

func TestAnAgentWithoutPodsOfItsOwnIsNotReadyBesideClosedInterfaces(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{"cali1": 11, "cali2": 12}})
		for i, node := range []string{"x", "x", "y"} {
			other := pod(i + 1)
			other.Endpoint.Node = node
			r.put(other)
		}
		r.put(model.InSync{})
		r.wantClosed(t, "every pod is another node's", 2, false, `2 interfaces of pods are closed (cali1, cali2): no pod of node "n" is known; `+
			`known pods belong to x (2 pods), y (1 pod): is "n" this node's name (--node)?`)
		if n := strings.Count(r.log.String(), "pods are cut off"); n != 1 {
			t.Errorf("%d lines in the log, want 1:\n%s", n, &r.log)
		}

		r.put(pod(1))
		time.Sleep(5 * time.Second)
		r.wantClosed(t, "one is this node's", 1, true, `1 interface of pods is closed (cali2): no pod of node "n" is known for them`)
		r.put(pod(2))
		time.Sleep(5 * time.Second)
		r.wantClosed(t, "both are", 0, true, "")
		if !strings.Contains(r.log.String(), "has its pod again") {
			t.Errorf("the log does not say that it is over:\n%s", &r.log)
		}
	})
}

func TestAnInterfaceThatAStartingAgentFindsBesideItsPodsHasTime(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{"cali1": 11, "cali2": 12}})
		r.put(pod(1))
		r.put(model.InSync{})
		r.wantClosed(t, "a pod may be in the making", 1, true, "")
		time.Sleep(closedAfter + 5*time.Second)
		r.wantClosed(t, "it does not come", 1, true, `1 interface of pods is closed (cali2): no pod of node "n" is known for them`)
	})
}

func TestAnInterfaceMayBeThereBeforeItsPod(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{}})
		r.put(model.InSync{})
		r.wantClosed(t, "an empty node", 0, true, "")
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{"cali1": 11}})
		time.Sleep(closedAfter / 2)
		r.wantClosed(t, "a pod is being made", 1, true, "")
		time.Sleep(closedAfter)
		r.wantClosed(t, "it does not come", 1, false, "nor of any other node")
		r.dp.Set(dataplane.FakeSettings{Interfaces: map[string]uint32{"cali1": 12}})
		time.Sleep(5 * time.Second)
		r.wantClosed(t, "another interface of that name", 1, true, "")
	})
}

// A pod that waits for its Namespace is known: its interface is no reason to doubt the node's name, and says what the pod waits for.
func TestAnInterfaceOfAPodThatWaitsForItsNamespace(t *testing.T) {
	c := newClosedInterfaces("n", slog.New(slog.DiscardHandler), func() map[string]int { return map[string]int{"n": 1} })
	now := time.Now()
	awaited := calc.AwaitedPod{ID: model.WorkloadID("evil", "x"), Iface: "cali1", Namespace: "evil"}
	for range 3 {
		c.look(now, map[string]uint32{"cali1": 7}, nil, awaited)
		now = now.Add(closedAfter)
	}
	if c.unready() != "" || len(c.problems()) != 0 {
		t.Errorf("not ready for %q, problems %v", c.unready(), c.problems())
	}
	rows := closedRows(c.list, nil, "n")
	if len(rows) != 1 || rows[0].Error != "closed: pod evil/x is closed until Namespace evil is known" {
		t.Errorf("rows: %+v", rows)
	}
	for range 3 {
		c.look(now, map[string]uint32{"cali1": 7}, nil)
		now = now.Add(closedAfter)
	}
	if c.unready() == "" {
		t.Error("without any pod the agent is ready")
	}
	if texts := notYet([]calc.AwaitedPod{awaited}, []model.EndpointID{awaited.ID}); len(texts) != 1 || texts[0] != "evil/x: closed until Namespace evil is known" {
		t.Errorf("explain says %q", texts)
	}
}
