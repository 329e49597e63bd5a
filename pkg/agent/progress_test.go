package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/margay-project/margay/pkg/dataplane"
)

// A held lock keeps an attempt from the changes that are stuck. It says nothing of them, so the dataplane is reopened after
// as many attempts that came to them.
func TestErrorsThatDoNotComeToStuckChangesLeaveTheirCount(t *testing.T) {
	stuck, other := fmt.Errorf("%w: full", dataplane.ErrStuck), errors.New("the lock is held")
	p := &progress{}
	for range maxStuckRetries - 1 {
		p.attempted(&Attempt{Retry: true}, stuck)
		p.attempted(&Attempt{Retry: true}, other)
	}
	if p.reopen {
		t.Fatal("reopened before the changes were stuck as often as allowed")
	}
	p.attempted(&Attempt{Retry: true}, stuck)
	if !p.reopen {
		t.Error("not reopened though the changes stay stuck")
	}
	p.attempted(&Attempt{Reopen: true}, errors.New("no memory"))
	if got, want := p.waiting(), "the dataplane cannot be reopened: no memory"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.reopened()
	if got := p.waiting(); got != "" {
		t.Errorf("%q though it was reopened", got)
	}
	for range 2 * maxStuckRetries {
		p.attempted(&Attempt{Retry: true}, stuck)
		p.attempted(&Attempt{Retry: true}, nil)
	}
	if p.reopen {
		t.Error("reopened though the changes were written each time")
	}
}
