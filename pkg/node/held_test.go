package node

import (
	"errors"
	"slices"
	"testing"
)

func TestWhatIsHeldIsReleasedOnceInTheReverseOrder(t *testing.T) {
	var h held
	var released []string
	broken := errors.New("broken")
	for _, name := range []string{"lock", "socket", "watch"} {
		h.add(func() error {
			released = append(released, name)
			if name == "socket" {
				return broken
			}
			return nil
		})
	}
	if err := h.release(); !errors.Is(err, broken) {
		t.Errorf("release: %v, want the error of the socket", err)
	}
	if err := h.release(); err != nil {
		t.Errorf("second release: %v", err)
	}
	if want := []string{"watch", "socket", "lock"}; !slices.Equal(released, want) {
		t.Errorf("released %v, want %v", released, want)
	}
}
