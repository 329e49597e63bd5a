package plans

import (
	"testing"
	"testing/synctest"
	"time"
)

// Parts follow each other at once until a change comes in between; then they take a quarter of the time, until a while after
// the last such change.
func TestPartsRestWhileOthersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(time.Now)
		part := func(d time.Duration) { time.Sleep(d); p.Took(d, 0) }
		part(10 * time.Millisecond)
		if w := p.Wait(); w != 0 {
			t.Errorf("%v to wait with nobody else about", w)
		}
		p.Interrupted()
		part(10 * time.Millisecond)
		if w := p.Wait(); w != 30*time.Millisecond {
			t.Errorf("%v to wait after 10 ms of work, want 30 ms", w)
		}
		time.Sleep(30 * time.Millisecond)
		if w := p.Wait(); w != 0 {
			t.Errorf("%v to wait after the rest", w)
		}
		part(time.Second)
		time.Sleep(paceHold)
		if w := p.Wait(); w != 0 {
			t.Errorf("%v to wait long after the last change of others", w)
		}
	})
}

// cost is a kernel in which a plan costs its overhead, which grows with what was done so far, and so much for each part.
type cost struct {
	start, grows, part time.Duration // grows: with each part
}

// play does so many parts, and returns how many plans that takes, how long all of them, and the longest.
func (c cost) play(p *Pace, parts int) (plans int, sum, longest time.Duration) {
	for done := 0; done < parts; plans++ {
		n := min(p.Parts(), parts-done)
		overhead := c.start + time.Duration(done)*c.grows
		took := overhead + time.Duration(n)*c.part
		p.Took(took, overhead)
		done += n
		sum, longest = sum+took, max(longest, took)
	}
	return plans, sum, longest
}

// Where a plan costs much however little is in it, plans become larger, so that the parts of large policies cost no more than a few
// times what they cost in one plan. None takes much longer than twice its overhead, or 100 ms.
func TestPlansDoAsMuchAsTheirOverhead(t *testing.T) {
	const parts = 100
	for _, c := range []struct {
		name    string
		cost    cost
		plans   int           // at most
		longest time.Duration // at most
	}{
		{"BPF", cost{0, 0, 5 * time.Millisecond}, parts, 5 * time.Millisecond},
		{"a small table", cost{4 * time.Millisecond, 0, 5 * time.Millisecond}, parts, 10 * time.Millisecond},
		{"a table that others' rules fill", cost{time.Second, 0, 50 * time.Millisecond}, 7, 2 * time.Second},
		{"a table that grows", cost{4 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}, 20, 4 * time.Second},
		{"commits of half a tenth of a second", cost{50 * time.Millisecond, 0, 5 * time.Millisecond}, 25, 100 * time.Millisecond},
		{"commits of nearly that", cost{90 * time.Millisecond, 0, 5 * time.Millisecond}, parts, 100 * time.Millisecond},
	} {
		plans, sum, longest := c.cost.play(NewPace(time.Now), parts)
		t.Logf("%s: %d plans, %v, the longest %v", c.name, plans, sum, longest)
		if plans > c.plans || longest > c.longest {
			t.Errorf("%s: %d plans, the longest of %v; want at most %d of at most %v", c.name, plans, longest, c.plans, c.longest)
		}
	}
}

// Parts that turn out to cost more than those before make the next plan smaller at once.
func TestAPlanThatTookLongIsFollowedByASmallerOne(t *testing.T) {
	p := NewPace(time.Now)
	for range 40 {
		p.Took(time.Second+time.Duration(p.Parts())*time.Millisecond, time.Second)
	}
	before := p.Parts()
	p.Took(time.Second+time.Duration(before)*100*time.Millisecond, time.Second)
	if before < 500 || p.Parts() != 10 {
		t.Errorf("%d parts after cheap ones, %d after some of 100 ms: want hundreds, and 10", before, p.Parts())
	}
}
