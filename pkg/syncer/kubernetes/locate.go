package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// locate finds out which candidate the server serves. Of several it is the first that has objects: a CRD that has just been
// made has none, and must not take the place of one whose policy is in force. It asks until it has an answer, or ctx ends.
// A kind is absent only if the lists of groups and resources could be read and name it in no version.
func (k *kind) locate(ctx context.Context, apis []api) (candidate int, found bool) {
	for {
		served, err := k.ask(ctx, len(k.places))
		if len(served) == 0 && err == nil {
			err = k.otherVersion(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return 0, false
		case len(served) > 0:
			return k.choose(ctx, apis, served), true
		case err == nil:
			k.reads("", nil)
			return 0, false
		}
		k.failed(err)
		if concernsAll(err) && k.source.gate.wait(ctx, err) {
			continue
		}
		k.complain()
		k.source.gate.sleep(ctx, k.pause.next(err))
	}
}

// choose returns the first of the served candidates that has objects, or else the first. One that cannot be asked counts as
// one that has: following it will report why.
//
// Counts are all that is compared. Where a server behind the cluster's serves the first group, both have the same objects; where
// objects are being copied from one group to the other, it has fewer until they are there. Where people write to both, the status
// names the group that is read.
func (k *kind) choose(ctx context.Context, apis []api, served []int) int {
	if len(served) < 2 {
		k.reads("", nil)
		return served[0]
	}
	counts := make([]int64, len(served))
	chosen := -1
	for i, candidate := range served {
		count, err := k.count(ctx, apis[candidate])
		if counts[i] = count; chosen < 0 && (err != nil || count > 0) {
			chosen = i
		}
	}
	if chosen < 0 {
		chosen = 0
	}
	var others []string
	for i, candidate := range served {
		if i != chosen {
			others = append(others, fmt.Sprintf("%s, %d objects", k.places[candidate].GroupVersion(), counts[i]))
		}
	}
	k.reads(k.places[served[chosen]].GroupVersion().String(), others)
	for i := chosen + 1; i < len(served); i++ {
		if counts[i] > counts[chosen] { // as many are most likely the same ones, by a server behind the cluster's
			k.log.Warn("a kind of object is served in two groups; more objects are in the one that the agent does not read",
				"read", k.places[served[chosen]].GroupVersion().String(), "objects", counts[chosen],
				"notRead", k.places[served[i]].GroupVersion().String(), "itsObjects", counts[i])
		}
	}
	return served[chosen]
}

// reads notes the group that is read, of several, and describes the others.
func (k *kind) reads(group string, others []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Read, k.status.NotRead = group, strings.Join(others, "; ")
	k.source.noteChange()
}

// count asks how many objects a candidate has.
func (k *kind) count(ctx context.Context, a api) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := a.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	m, err := meta.ListAccessor(answer)
	if err != nil {
		return 0, err
	}
	count := int64(meta.LenList(answer))
	if more := m.GetRemainingItemCount(); more != nil {
		count += *more
	}
	return count, nil
}

// ask looks for the first candidates once, and returns those that are served. The error is of a candidate whose server
// fails, which is passed over for one that is there.
func (k *kind) ask(ctx context.Context, first int) (served []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	groups, err := k.source.discovery.Groups(ctx)
	if err != nil {
		return nil, err
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

// lookForBetter stops following a candidate when an earlier one is served and has as many objects. So while objects are
// copied from one group to the other, the originals stay in force until the copy is complete.
func (k *kind) lookForBetter(ctx context.Context, apis []api, candidate int, cancel context.CancelCauseFunc) {
	reported := int64(-1)
	for sleep(ctx, k.source.discovery.pause(k.source.ProbeEvery)) {
		served, err := k.ask(ctx, candidate)
		if err != nil || len(served) == 0 {
			continue
		}
		better := served[0]
		count, err := k.count(ctx, apis[better])
		known := int64(k.snapshot().Objects)
		switch {
		case err != nil:
		case count >= known:
			cancel(errBetter)
			return
		case count != reported:
			reported = count
			k.log.Warn("a kind of object is served in two groups; the agent reads the second until the first has as many objects",
				"first", k.places[better].GroupVersion().String(), "objects", count,
				"second", k.places[candidate].GroupVersion().String(), "itsObjects", known)
		}
	}
}
