package agent

import "time"

// firstSweep is when the dataplane is first looked at after the start: it says itself when next. What others do to its rules in the
// first moments of an agent is to be seen as soon as later.
const firstSweep = 250 * time.Millisecond

// timers start passes although nothing has changed.
type timers struct {
	sweep       *time.Timer
	look        *time.Ticker
	resync      *time.Ticker
	resyncEvery time.Duration
	retry       *backoff
}

func newTimers(resyncEvery time.Duration) *timers {
	return &timers{sweep: time.NewTimer(firstSweep), look: time.NewTicker(lookEvery), resync: time.NewTicker(resyncEvery),
		resyncEvery: resyncEvery, retry: newBackoff()}
}

// after sets the timers as a pass demands.
func (t *timers) after(did task, out Outcome) {
	if did.apply {
		t.retry.after(out.Complete)
	}
	if out.Sweep != nil {
		t.sweep.Reset(out.Sweep.Next)
	}
	if out.Config != nil && out.Config.Desired.ResyncEvery != t.resyncEvery {
		t.resyncEvery = out.Config.Desired.ResyncEvery
		t.resync.Reset(t.resyncEvery)
	}
}

func (t *timers) stop() {
	t.sweep.Stop()
	t.look.Stop()
	t.resync.Stop()
	t.retry.timer.Stop()
}
