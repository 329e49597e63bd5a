package kubernetes

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// history notices that the server has lost the end of its history, as it does when its etcd is restored from a backup. A server accepts
// a watch from a version that it has not reached yet, and such a watch gets none of what happens until then, nor ever: the agent would
// miss it. So after an outage the newest version of the server is compared with those that watches have come to. Lists ask for it
// once for all kinds. Only a kind that seems to be ahead asks for its own: it may be stored in another etcd.
//
// A server that has made up for the lost versions by the time it is asked looks as if it had lost none.
type history struct {
	api    api           // of Namespaces
	asking chan struct{} // holds a token while one asks
	outage int           // after which version was the newest; 0: none
	newest uint64
	log    *slog.Logger
	logged int // the last outage of which the log knows that it has cost history
}

func newHistory(log *slog.Logger) *history { return &history{asking: make(chan struct{}, 1), log: log} }

// isBehind reports whether the server has not reached a version after an outage, given the resource that has it.
func (h *history) isBehind(ctx context.Context, of api, outage int, version uint64) (behind bool, err error) {
	select {
	case h.asking <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-h.asking }()
	if h.outage < outage {
		if h.newest, err = newestVersion(ctx, h.api); err != nil {
			return false, err
		}
		h.outage = outage
	}
	if h.newest == 0 || h.newest >= version {
		return false, nil
	}
	newest, err := newestVersion(ctx, of)
	if behind = newest != 0 && newest < version; behind && h.logged < outage {
		h.logged = outage
		h.log.Warn("the API server has lost the end of its history, as when its etcd is restored from a backup; the agent lists everything again",
			"version", newest, "versionBefore", version)
	}
	return behind, err
}

// newestVersion is that of a server, as it says with the shortest list of a resource; 0: it has no numbers, we may not list, or the resource
// is not served. Any other answer is an error, after which it is asked again: one that is busy does not say that it has lost nothing.
func newestVersion(ctx context.Context, a api) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := a.List(ctx, metav1.ListOptions{Limit: 1}, func(runtime.Object) error { return nil })
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return number(list.ResourceVersion), nil
}

// checkHistory returns an error, after which the Reflector lists again, if the server has lost the version from which a watch is to go on.
func (f *follower) checkHistory(ctx context.Context, o metav1.ListOptions) error {
	outage := f.kind.source.gate.past()
	at := number(o.ResourceVersion)
	if outage == f.outage || at == 0 || o.SendInitialEvents != nil {
		return nil
	}
	behind, err := f.kind.source.gate.history.isBehind(ctx, f.api, outage, at)
	if err != nil {
		return err
	}
	if f.outage = outage; !behind {
		return nil
	}
	f.kind.store.distrust()
	return apierrors.NewResourceExpired(fmt.Sprintf("the API server has lost version %d", at))
}
