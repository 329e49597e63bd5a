package kubernetes

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// locate finds out which candidate the server serves, the first if it serves several. It asks until it has an answer,
// or ctx ends. That nothing is served is said only by a server whose lists of groups and resources could be read.
func (k *kind) locate(ctx context.Context) (candidate int, found bool) {
	for {
		i, found, err := k.ask(ctx, len(k.places))
		switch {
		case ctx.Err() != nil:
			return 0, false
		case err == nil:
			return i, found
		}
		k.failed(err)
		if concernsAll(err) && k.source.gate.wait(ctx, err) {
			continue
		}
		k.complain()
		k.source.gate.sleep(ctx, k.pause.next(err))
	}
}

// ask looks for the first candidates once. A candidate whose server fails is passed over for one that is there.
func (k *kind) ask(ctx context.Context, first int) (candidate int, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	groups, err := k.source.discovery.Groups(ctx)
	if err != nil {
		return 0, false, err
	}
	var failure error
	for i, c := range k.places[:first] {
		if !serves(groups, c.GroupVersion()) {
			continue
		}
		list, err := k.source.discovery.Resources(ctx, c.GroupVersion())
		if err != nil {
			failure = err
			continue
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == c.Resource }) {
			return i, true, nil
		}
	}
	return 0, false, failure
}

func serves(groups *metav1.APIGroupList, gv schema.GroupVersion) bool {
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == gv.Group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == gv.Version })
	})
}

// lookForBetter ends the following of a candidate when one before it is served.
func (k *kind) lookForBetter(ctx context.Context, candidate int, cancel context.CancelCauseFunc) {
	for sleep(ctx, k.source.discovery.pause(k.source.ProbeEvery)) {
		if _, found, err := k.ask(ctx, candidate); err == nil && found {
			cancel(errBetter)
			return
		}
	}
}
