package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/iptables"
)

// Somebody can restore the agent's chains with the commands of the other backend, while the agent runs. Packets have to pass both then, and
// the copy denies what policy of that moment denied. The agent treats it like the chains of an agent before it that had that backend.

// copiedPatience bounds the time for finding and trying the commands of the other backend, and for the wait for its lock.
const copiedPatience = 5 * time.Second

var errNotRemoved = errors.New("its commands are not installed, or do not work: install them, or remove the chains")

// copiedText describes the fault.
func copiedText(other iptables.Backend) string {
	return fmt.Sprintf("tables of the backend %s have chains of Margay, and packets have to pass those, too", other)
}

// removeCopied removes chains of agents from the tables of the other backend, once this world judges all packets. It returns the number of
// chains.
func (w *world) removeCopied(ctx context.Context, kernel Kernel, log *slog.Logger) (removed int, err error) {
	if !w.inForce || len(w.former) > 0 || kernel.Others == nil {
		return 0, nil
	}
	other, err := elsewhere(kernel.Tools)
	if other == "" || err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, copiedPatience)
	defer cancel()
	list, _, err := openFormer(ctx, kernel)
	if err != nil {
		return 0, err
	}
	for _, f := range list {
		n, err := f.remove(ctx)
		if removed += n; err != nil {
			return removed, fmt.Errorf("%s: %w", copiedText(other), err)
		}
	}
	if removed == 0 {
		return 0, fmt.Errorf("%s: %w", copiedText(other), errNotRemoved)
	}
	log.Warn("chains of Margay had been restored by somebody else in the tables of the other backend, removed", "tables", "backend "+string(other), "chains", removed)
	return removed, nil
}
