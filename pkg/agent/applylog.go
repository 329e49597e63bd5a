package agent

import "log/slog"

// applyLog logs how attempts to enforce end: each problem once, and that it is over.
type applyLog struct {
	log                         *slog.Logger
	inSync                      string // what is logged of the first attempt that succeeds
	applying, holding, sweeping *problems
}

// newApplyLog returns the log of a dataplane that enforces what it is given, or only records it.
func newApplyLog(log *slog.Logger, enforces bool) *applyLog {
	inSync := "in sync: policy is enforced"
	if !enforces {
		inSync = "in sync: policy is recorded and not enforced"
	}
	return &applyLog{
		log:    log,
		inSync: inSync,
		applying: newProblems(log, "policy is not fully enforced, what was written before is left as it is; will try again",
			"policy is fully enforced again"),
		holding:  newProblems(log, "the policy of an endpoint cannot be enforced, all other policy is", "every endpoint's policy is enforced again"),
		sweeping: newProblems(log, "expired flows are not removed, will try again", "expired flows are removed again"),
	}
}

// Observe implements observer.
func (l *applyLog) Observe(o Outcome) {
	if o.Sweep != nil {
		l.sweeping.report(o.Sweep.Err)
	}
	if o.Reopen != nil && o.Reopen.Stuck {
		l.log.Warn("changes that cannot be written held up other changes; restarting from the state in the kernel")
	}
	if o.Apply == nil {
		return
	}
	l.applying.report(o.Apply.Err)
	switch {
	case o.Apply.Held != nil:
		l.holding.report(o.Apply.Held.Err)
	case o.Apply.Err == nil:
		l.holding.report(nil)
	}
	if o.Apply.First {
		l.first(o)
	}
}

// first logs the first attempt that succeeded. Pods without their interface may be all there are, as with a wrong prefix.
func (l *applyLog) first(o Outcome) {
	text, more := l.inSync, []any{}
	if waiting := waitingOf(o.States); waiting > 0 {
		text, more = text+", but for pods that wait for their interfaces", []any{"waiting", waiting}
		if waiting == len(o.States) {
			text = "in sync: no policy is enforced yet, all pods of this node wait for their interfaces"
		}
	}
	l.log.Info(text, append([]any{"endpoints", len(o.Facts.Local), "took", o.Apply.Took}, more...)...)
}
