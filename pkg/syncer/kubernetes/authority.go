package kubernetes

import (
	"cmp"
	"slices"
	"strings"
)

// authority is which of Calico's two groups is read while the cluster serves both, for all kinds together. It follows from
// cluster-wide objects alone, which no tenant writes, so no object in a namespace can withdraw the policy of another.
//
// The first group is read if it has every cluster-wide object that the second has, and at least one. So a group whose CRDs have
// just been made, or that is being filled, does not replace the one in use, and behind an API server that serves the second
// group's objects as the first the first is read. An agent that reads the second changes to the first when that has been so at two
// looks in a row, because those who copy may copy what is in namespaces last. It does not change back while both are
// served: what is deleted in the first group is in the second as long as the old objects are.
//
// Calico's API server refuses policies to those who have no right to a tier. An agent that starts without it reads the second group, which
// has the same objects then, instead of waiting for the right with nothing enforced. It changes to the first when it has the right.
type authority uint8

const (
	undecided authority = iota
	readsSecond
	firstIsNext // reads the second; at the last look the first was complete
	readsFirst
)

// evidence is the result of one look at the cluster-wide objects of both groups.
type evidence struct {
	any     bool   // the first group has one
	missing string // one that only the second has, "Tier secure"; empty: none
	surplus string // one that only the first has; empty: none
	right   string // that the agent lacks to read the first, "tier.networkpolicies"; empty: none
}

// note adds the names of one kind's objects in each group.
func (e *evidence) note(kind string, first, second []string) {
	e.any = e.any || len(first) > 0
	e.missing = cmp.Or(e.missing, onlyIn(kind, second, first))
	e.surplus = cmp.Or(e.surplus, onlyIn(kind, first, second))
}

// onlyIn is the first object that is among names and not among others, "Tier secure"; empty: there is none.
func onlyIn(kind string, names, others []string) string {
	have := make(map[string]struct{}, len(others))
	for _, name := range others {
		have[canonical(kind, name)] = struct{}{}
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, ok := have[canonical(kind, name)]; !ok {
			return kind + " " + name
		}
	}
	return ""
}

// refused notes that the agent lacks a right of Calico's API server, which therefore serves the first group. It reports whether the
// evidence decides in spite of that: what could be compared has to be the same in both groups, so that the second is what that server
// reads and writes, and not a copy that is out of date.
func (e *evidence) refused(right string) bool {
	e.right = right
	return e.any && e.missing == "" && e.surplus == ""
}

// canonical is the same for both names that a policy of the default tier can have. Some of Calico's API servers add the tier.
func canonical(kind, name string) string {
	if kind == "GlobalNetworkPolicy" {
		return strings.TrimPrefix(name, "default.")
	}
	return name
}

// against says why the first group is not read, as the end of a sentence that begins with the group; empty: it is to be read.
func (e evidence) against() string {
	switch lack := e.lack(); {
	case lack != "":
		return "lacks " + lack
	case e.right != "":
		return "needs the right to get, list and watch " + e.right
	}
	return ""
}

// lack is what the first group lacks to be read; empty: nothing.
func (e evidence) lack() string {
	switch {
	case e.missing != "":
		return e.missing
	case !e.any:
		return "any cluster-wide object"
	}
	return ""
}

// after returns the authority after a look.
func (a authority) after(e evidence) authority {
	switch {
	case a == readsFirst:
		return readsFirst
	case e.against() != "":
		return readsSecond
	case a == readsSecond:
		return firstIsNext
	}
	return readsFirst
}

// served returns the authority after an answer of discovery. A group that is served alone is in force when the other one comes.
func (a authority) served(first, second bool) authority {
	switch {
	case first && second:
		return a
	case first:
		return readsFirst
	case second:
		return readsSecond
	}
	return undecided
}

// place is the position of the group that is read among the places of a kind.
func (a authority) place() int {
	if a == readsFirst {
		return 0
	}
	return 1
}
