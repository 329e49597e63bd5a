package node

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/margay-project/margay/pkg/config"
)

// What a composition acquires is released if it fails, and otherwise by Close.
func TestACompositionIsReleasedWhole(t *testing.T) {
	fails := errors.New("fails")
	for name, failure := range map[string]error{"it fails": fails, "it opens": nil} {
		t.Run(name, func(t *testing.T) {
			released := 0
			d, err := open(func(_ config.Config, h *held, _ *slog.Logger) (*Dataplane, error) {
				h.add(func() error {
					released++
					return nil
				})
				return &Dataplane{}, failure
			}, config.Defaults(), slog.New(slog.DiscardHandler))
			if failure != nil {
				if d != nil || !errors.Is(err, fails) || err.Error() != "fails" || released != 1 {
					t.Errorf("opened %v, error %v, released %d times", d, err, released)
				}
				return
			}
			if err != nil || released != 0 {
				t.Fatalf("error %v, released %d times", err, released)
			}
			if err := d.Close(); err != nil || released != 1 {
				t.Errorf("close: %v, released %d times", err, released)
			}
		})
	}
}
