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
		p := NewPace()
		part := func(d time.Duration) { time.Sleep(d); p.Took(d) }
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
