package bpf

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// TestRefusedFlowsAreToldOnce, by endpoint.
func TestRefusedFlowsAreToldOnce(t *testing.T) {
	n := startNode(t, restartStages[0])
	var log bytes.Buffer
	n.kernel.log = slog.New(slog.NewTextHandler(&log, nil))
	count := func(s bpf.Share) {
		t.Helper()
		for _, ep := range n.state.endpoints.roster.bound {
			if ep.ifindex == 1000 {
				number := ep.share - 1
				if err := n.kernel.maps.Map(bpf.MargayMapShares).Put(&number, &s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	resync := func(told int) {
		t.Helper()
		n.Resync()
		n.mustApply(t)
		if got := strings.Count(log.String(), "endpoint=t/a "); got != told {
			t.Errorf("told %d times, want %d:\n%s", got, told, &log)
		}
	}
	count(bpf.Share{Open: 5})
	resync(0)
	count(bpf.Share{Open: 5, Refused: 7})
	resync(1)
	resync(1)
	count(bpf.Share{Open: 5, Refused: 8})
	resync(2)
}

// A tenant with many pods does not fill the log, and other namespaces' pods are named all the same.
func TestFewEndpointsOfANamespaceAreNamed(t *testing.T) {
	var over []full
	for i := range 9 {
		over = append(over, full{id: model.WorkloadID("many", string(rune('a'+i))), refused: uint64(i + 1)})
	}
	over = append(over, full{id: model.WorkloadID("one", "x"), open: 5, refused: 1})
	var log bytes.Buffer
	logFull(over, slog.New(slog.NewTextHandler(&log, nil)))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != mostReported+2 {
		t.Fatalf("%d lines:\n%s", len(lines), &log)
	}
	for i, want := range []string{"endpoint=many/i", "endpoint=many/h", "endpoint=many/g", "endpoint=many/f", "endpoint=many/e",
		"namespace=many endpoints=4", "endpoint=one/x open=5 refused=1"} {
		if !strings.HasSuffix(lines[i], want) && !strings.Contains(lines[i], want+" ") {
			t.Errorf("line %d: %s, want %s", i, lines[i], want)
		}
	}
}

// Every endpoint has a share of its own, and keeps it when the dataplane is reopened.
func TestEndpointsHaveSharesOfTheirOwn(t *testing.T) {
	s := restartStages[0]
	s.more = 3
	n := startNode(t, s)
	shares := map[uint32]uint32{}
	for _, e := range n.kernel.endpoints.List() {
		if other, taken := shares[e.Share]; taken {
			t.Errorf("interfaces %d and %d have share %d", e.Ifindex, other, e.Share)
		}
		shares[e.Share] = e.Ifindex
	}
	if len(shares) < 2 {
		t.Fatalf("shares %v: want at least two endpoints", shares)
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.mustApply(t, s.updates()...)
	for _, e := range n.kernel.endpoints.List() {
		if shares[e.Share] != e.Ifindex {
			t.Errorf("after it interface %d has share %d, before: %v", e.Ifindex, e.Share, shares)
		}
	}
}

func TestAFreeShareIsOneWithFewOpenFlows(t *testing.T) {
	shares := []bpf.Share{{Open: 3}, {Open: 1}, {Open: 2}}
	bound := map[model.EndpointID]*endpoint{}
	for i, want := range []uint32{1, 2, 0, 1} {
		got := freeShare(bound, shares)
		if got != want {
			t.Errorf("endpoint %d gets share %d, want %d", i, got, want)
		}
		bound[model.WorkloadID("", string(rune('a'+i)))] = &endpoint{share: got + 1}
	}
}
