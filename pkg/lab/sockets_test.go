package lab

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// closing counts how often it is closed, and fails with err.
type closing struct {
	times int
	err   error
}

func (c *closing) Close() error {
	c.times++
	return c.err
}

func TestWhatIsOpenEndsWithItsHost(t *testing.T) {
	s := newSockets("shop/web")
	broken := errors.New("broken")
	kept, forgotten, ended, failing := &closing{}, &closing{}, &closing{err: net.ErrClosed}, &closing{err: broken}
	for _, c := range []*closing{kept, forgotten, ended, failing} {
		if err := s.add(c); err != nil {
			t.Fatal(err)
		}
	}
	s.forget(forgotten)
	err := s.close()
	if !errors.Is(err, broken) || errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("%v, want the failure of one, with the host's name, and nothing of what was closed before", err)
	}
	if kept.times != 1 || forgotten.times != 0 || ended.times != 1 || failing.times != 1 {
		t.Errorf("closed %d, %d, %d and %d times", kept.times, forgotten.times, ended.times, failing.times)
	}
	if err := s.close(); err != nil || kept.times != 1 {
		t.Errorf("closed again: %v, %d times", err, kept.times)
	}
}

func TestNothingOpensInAHostThatIsClosed(t *testing.T) {
	s := newSockets("shop/web")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	late := &closing{}
	if err := s.add(late); err == nil || late.times != 1 {
		t.Errorf("%v, closed %d times", err, late.times)
	}
	s.forget(late) // does no harm
}
