package events

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// attempts are those of all nodes of a cluster at shared problems until a time, in the order of subjects and nodes.
func attempts(ledgers []*ledger, from, until time.Time) map[string][]time.Duration {
	all := map[string][]time.Duration{}
	for _, l := range ledgers {
		for name, times := range told(l, from, until) {
			all[name] = append(all[name], times...)
		}
	}
	return all
}

func cluster(nodes int, all map[subject]message) []*ledger {
	var ledgers []*ledger
	for i := range nodes {
		l := newLedger(fmt.Sprintf("node-%d", i))
		l.report(all, nodes, start)
		ledgers = append(ledgers, l)
	}
	return ledgers
}

// What the API server gets does not depend on the number of nodes, and its rate not on the number of problems.
func TestAFewNodesReportWhatAllSee(t *testing.T) {
	for _, tc := range []struct{ nodes, problems int }{{1, 1}, {3, 50}, {8, 50}, {100, 100}, {1000, 200}, {5000, 100}} {
		var names []string
		for i := range tc.problems {
			names = append(names, fmt.Sprintf("policy-%d", i))
		}
		all := attempts(cluster(tc.nodes, shared(names...)), start, start.Add(repeatAfter-time.Second))
		total, seconds, late := 0, map[time.Duration]int{}, time.Duration(0)
		for _, times := range all {
			total += len(times)
			for _, at := range times {
				seconds[at.Truncate(time.Second)]++
				late = max(late, at)
			}
		}
		worst := 0
		for _, n := range seconds {
			worst = max(worst, n)
		}
		mean, want := float64(total)/float64(tc.problems), float64(min(tc.nodes, reporters))
		if missing := tc.problems - len(all); missing > 1 {
			t.Errorf("%d nodes: nobody reports %d of %d problems", tc.nodes, missing, tc.problems)
		}
		if margin := 4 * math.Sqrt(want/float64(tc.problems)); math.Abs(mean-want) > margin {
			t.Errorf("%d nodes: %.2f attempts at a problem, want about %v", tc.nodes, mean, want)
		}
		if most := int(2 * time.Second / attemptSpread); worst > most {
			t.Errorf("%d nodes: %d attempts in one second, want at most %d", tc.nodes, worst, most)
		}
		t.Logf("%d nodes, %d problems: %.2f attempts at each, at most %d in a second, the last after %v", tc.nodes, tc.problems, mean, worst, late)
	}
}

func TestOtherNodesReportInTheNextTurn(t *testing.T) {
	const nodes = 1000
	s := subject{kind: "NetworkPolicy", namespace: "shop", name: "db"}
	drawn := func(number int) (all []string) {
		for i := range nodes {
			node := fmt.Sprintf("node-%d", i)
			turn := firstTurn(node, s, start)
			turn.advance(node, s, start.Add(time.Duration(number)*repeatAfter))
			if turn.number != number {
				t.Fatalf("turn %d, want %d", turn.number, number)
			}
			if _, ok := turn.mine(nodes, 1); ok {
				all = append(all, node)
			}
		}
		return all
	}
	if first, again := drawn(0), drawn(0); fmt.Sprint(first) != fmt.Sprint(again) || len(first) == 0 {
		t.Errorf("after a restart %v report, before %v", again, first)
	}
	if first, second := drawn(0), drawn(1); fmt.Sprint(first) == fmt.Sprint(second) {
		t.Errorf("the same nodes report in the next turn: %v", first)
	}
}

// The same nodes report whatever the message is, so that the rate of events on an object has a bound.
func TestAnObjectThatChangesAllTheTimeGetsFewEvents(t *testing.T) {
	const nodes = 200
	ledgers := cluster(nodes, nil)
	s := subject{kind: "NetworkPolicy", namespace: "shop", name: "db"}
	total := 0
	for i := range 600 { // a new message each second
		now := start.Add(time.Duration(i) * time.Second)
		for _, l := range ledgers {
			l.report(map[subject]message{s: {note: fmt.Sprint(i)}}, nodes, now)
			total += len(told(l, now, now.Add(time.Second-1))["db"])
		}
	}
	if most := 2 * reporters * 4; total == 0 || total > most {
		t.Errorf("%d attempts in ten minutes, want at most %d", total, most)
	}
}

func TestWithoutKnowingTheNodesSomeReport(t *testing.T) {
	n := 0
	for i := range assumedNodes {
		l := newLedger(fmt.Sprintf("node-%d", i))
		l.report(shared("db"), 0, start)
		n += len(told(l, start, start.Add(time.Minute))["db"])
	}
	if n == 0 || n > 3*reporters {
		t.Errorf("%d of %d nodes report, want about %d", n, assumedNodes, reporters)
	}
}
