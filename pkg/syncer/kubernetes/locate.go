package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// locate finds out which candidate is to be read: the one that is served, or of several the one that groups decides for all kinds.
// It asks until it has an answer, or ctx ends. A kind is absent only if the lists of groups and resources could be read and
// name it in no version, and if the server was ready before it was asked for them: while it starts it may not know yet what it serves.
// Likewise one of two candidates is served alone only then.
func (k *kind) locate(ctx context.Context) (candidate int, found bool) {
	asked := false // whether the server is ready
	for {
		candidate, found, err := k.look(ctx, asked)
		switch {
		case ctx.Err() != nil:
			return 0, false
		case err == nil && !asked && (found && k.isAlone() || !found && k.matters()):
			asked = true // a server that is never ready is not waited for without end
			if err := k.source.discovery.confirm(ctx); err != nil {
				k.source.gate.wait(ctx, err)
			}
			continue
		case err == nil:
			return candidate, found
		}
		k.failed(err)
		if concernsAll(err) && k.source.gate.wait(ctx, err) {
			continue
		}
		k.complain()
		k.source.gate.sleep(ctx, k.pause.next(err))
	}
}

// matters reports whether it would change anything that the kind is absent.
func (k *kind) matters() bool { return k.store.len() > 0 || !k.snapshot().Listed }

// isAlone reports whether the last look found one of two candidates alone.
func (k *kind) isAlone() bool { return len(k.places) > 1 && k.snapshot().Read == "" }

// look is one attempt of locate.
func (k *kind) look(ctx context.Context, ready bool) (candidate int, found bool, err error) {
	served, err := k.ask(ctx, ready)
	switch {
	case len(served) > 1:
		candidate, against, err := k.source.groups.place(ctx, 0)
		if err == nil {
			k.reads(candidate, against)
		}
		return candidate, true, err
	case err == nil && len(served) == 0:
		err = k.otherVersion(ctx)
	case len(served) == 1:
		err = nil // of the other place, which fails
	}
	if err != nil {
		return 0, false, err
	}
	k.noteRead("", "") // there are no two places
	if len(served) == 0 {
		return 0, false, nil
	}
	return served[0], true, nil
}

// reads notes the place that is read of two, and why the first group is not, if it is the second.
func (k *kind) reads(candidate int, against string) {
	other := k.places[1-candidate].GroupVersion().String()
	if candidate == 1 && against != "" {
		other += ", which " + against
	}
	k.noteRead(k.places[candidate].GroupVersion().String(), other)
}

func (k *kind) noteRead(read, notRead string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Read, k.status.NotRead = read, notRead
	k.source.noteReport()
}

// ask looks for the candidates once, and returns those that are served. The error is of a candidate whose server fails, which is
// passed over for one that is there. Ready says that the server was ready before, or will not be.
func (k *kind) ask(ctx context.Context, ready bool) (served []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	groups, err := k.source.discovery.Groups(ctx)
	if err != nil {
		return nil, err
	}
	if len(k.places) > 1 {
		k.source.groups.note(ctx, groups, ready)
	}
	var failure error
	for i, c := range k.places {
		if !serves(groups, c.GroupVersion()) {
			continue
		}
		list, err := k.source.discovery.Resources(ctx, c.GroupVersion())
		if err != nil {
			failure = err
			continue
		}
		if hasResource(list, c.Resource) {
			served = append(served, i)
		}
	}
	return served, failure
}

// otherVersion returns an error if the server has the kind in a version that is not read. Its objects are there, and some may
// deny: the kind is not absent.
func (k *kind) otherVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	groups, err := k.source.discovery.Groups(ctx)
	if err != nil {
		return err
	}
	for _, place := range k.places {
		for _, gv := range versionsOf(groups, place.Group) {
			if slices.Contains(k.Versions, gv) {
				continue // it has other resources
			}
			list, err := k.source.discovery.Resources(ctx, gv)
			switch {
			case err != nil:
				return err
			case hasResource(list, k.Resource):
				return fmt.Errorf("the API server serves %s as %s, which this agent does not read; serve %s, too, or run an agent that reads %s",
					k.Resource, gv, place.GroupVersion(), gv)
			}
		}
	}
	return nil
}

func versionsOf(groups *metav1.APIGroupList, group string) (all []schema.GroupVersion) {
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if gv := (schema.GroupVersion{Group: g.Name, Version: v.Version}); g.Name == group && !slices.Contains(all, gv) {
				all = append(all, gv)
			}
		}
	}
	return all
}

func hasResource(list *metav1.APIResourceList, name string) bool {
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
}

func serves(groups *metav1.APIGroupList, gv schema.GroupVersion) bool {
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == gv.Group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == gv.Version })
	})
}

// lookForBetter stops following the second place when the first is to be read. All kinds look at the same times, and one look is
// for all of them.
func (k *kind) lookForBetter(ctx context.Context, cancel context.CancelCauseFunc) {
	age := max(k.source.ProbeEvery, time.Second) / 4 // less than any pause
	for sleep(ctx, k.source.discovery.pause(k.source.ProbeEvery)) {
		served, err := k.ask(ctx, false)
		if err != nil || len(served) < 2 {
			continue
		}
		place, against, err := k.source.groups.place(ctx, age)
		switch {
		case err != nil:
		case place == 0:
			cancel(errBetter)
			return
		default:
			k.reads(place, against)
		}
	}
}
