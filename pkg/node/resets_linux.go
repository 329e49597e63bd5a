package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/tcpreset"
)

const (
	// resetsGroup is the NFLOG group to which chains copy packets of ended TCP connections.
	resetsGroup = 29817
	// listenAgain is the time between attempts to listen to the group: an agent that is being replaced may still listen.
	listenAgain = time.Second
)

// resetReceivers resets the receiving ends of TCP connections that policy has ended, until ctx ends. The sending ends are
// reset by a rule, with or without this.
func resetReceivers(ctx context.Context, log *slog.Logger) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for failing := false; ctx.Err() == nil; failing = true {
		w, err := tcpreset.Watch(resetsGroup, iptables.ResetsMasqueraded)
		if err == nil {
			failing = false
			err = errors.Join(w.Run(ctx), w.Close())
		}
		if err != nil && !failing && ctx.Err() == nil {
			log.Warn("only the senders of connections that policy ends are reset, not their receivers; will try again", "err", err)
		}
		timer.Reset(listenAgain)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}
