package attach

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// WatchOptions say where to watch.
type WatchOptions struct {
	NetNS  *netns.NsHandle // nil: the process's own network namespace
	Logger *slog.Logger    // logs restarts of a subscription
}

// retryAfter is how long a subscription that cannot be made waits.
const retryAfter = time.Second

// subscription is a stream of netlink notifications of some groups.
type subscription struct {
	socket   *nl.NetlinkSocket
	messages chan []syscall.NetlinkMessage
	failed   chan error // one value; then messages has ended. ENOBUFS: notifications were lost
	stop     chan struct{}
}

func subscribe(o WatchOptions, groups ...uint) (*subscription, error) {
	at := netns.None()
	if o.NetNS != nil {
		at = *o.NetNS
	}
	socket, err := nl.SubscribeAt(at, netns.None(), unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to netlink: %w", err)
	}
	s := &subscription{
		socket: socket, messages: make(chan []syscall.NetlinkMessage), failed: make(chan error, 1), stop: make(chan struct{}),
	}
	go s.receive()
	return s, nil
}

func (s *subscription) receive() {
	for {
		messages, from, err := s.socket.Receive()
		if err != nil {
			s.failed <- err
			return
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		select {
		case s.messages <- messages:
		case <-s.stop:
			return
		}
	}
}

// close ends the subscription and its goroutine.
func (s *subscription) close() {
	close(s.stop)
	s.socket.Close()
}

// session follows one subscription from its start: it reads the present state after subscribing, so that nothing falls
// between, and then works until ctx ends (nil) or the subscription fails.
type session interface {
	open() error
	follow(ctx context.Context) error
}

// keepUp opens a new session whenever one fails, until ctx ends. The first is open already. No change is lost: a new
// session reads the state again and compares.
func keepUp(ctx context.Context, what string, s session, logger *slog.Logger) {
	for err := s.follow(ctx); ctx.Err() == nil; err = s.follow(ctx) {
		for ctx.Err() == nil {
			logger.Warn("netlink subscription restarts", "watching", what, "err", err)
			if err = s.open(); err == nil {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
}
