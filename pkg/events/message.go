package events

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/margay-project/margay/pkg/validate"
)

// Item is a problem that is to be reported to the owner of its object.
type Item struct {
	Problem validate.Problem // Ref names an object of the cluster; mere Warnings are reported of policies and configuration only, unless Claim is set
	// Local: this node cannot enforce the object (a pod of its own), which only this node knows. Otherwise every node
	// has the same problem with the object, and a few of them tell.
	Local bool
	// Version changes whenever the object does, such as its resourceVersion; it is then reported again. Empty: not known.
	Version string
	// Note: the text is no problem of the object but something to know about it.
	Note bool
	// Claim: the object claims an address that is not its own. It is reported of objects of every kind.
	Claim bool
}

// Reasons of events.
const (
	ReasonPolicyRejected = "PolicyRejected"  // a policy that is not used
	ReasonObjectRejected = "ObjectRejected"  // another object that is not used
	ReasonRulesLeftOut   = "RulesLeftOut"    // a policy that is used without some of its rules
	ReasonPartlyIgnored  = "PartlyIgnored"   // an object that is used, though part of it means nothing
	ReasonNotEnforced    = "NotEnforced"     // a pod whose policy its node cannot enforce
	ReasonNotOwned       = "AddressNotOwned" // a pod or Service that claims an address of another
	ReasonDataplane      = "DataplaneChosen" // a node that does not have the preferred dataplane
)

// maxSubjects bounds how many objects are remembered, those whose problems are over included.
const maxSubjects = 1000

// maxNote is the longest note the API server takes, in bytes.
const maxNote = 1024

// subject is whom an event is about and whose problem it is. An object has at most one event under way for each.
type subject struct {
	kind, namespace, name string
	local                 bool
}

func (s subject) compare(o subject) int {
	return cmp.Or(cmp.Compare(s.kind, o.kind), cmp.Compare(s.namespace, o.namespace), cmp.Compare(s.name, o.name), localFirst(o, s))
}

// String is "NetworkPolicy shop/db".
func (s subject) String() string {
	if s.namespace == "" {
		return s.kind + " " + s.name
	}
	return s.kind + " " + s.namespace + "/" + s.name
}

// message is the report about one subject. Comparable: an equal one is not reported again.
type message struct {
	reason, action, note, version string
}

// messages makes one message for each object, of all of its problems. leftOut is the number of objects beyond
// maxSubjects. There may be a million items, so only those of the other objects are kept.
func messages(items iter.Seq[Item]) (all map[subject]message, leftOut int) {
	found, last := map[subject][]Item{}, subject{} // those of one object follow each other mostly
	for s := range subjectsOf(items) {
		if s != last {
			found[s], last = nil, s
		}
	}
	subjects := slices.SortedFunc(maps.Keys(found), subject.compare)
	leftOut = max(0, len(subjects)-maxSubjects)
	rank(subjects)
	for _, s := range subjects[len(subjects)-leftOut:] {
		delete(found, s)
	}
	without := subject{}
	for s, it := range subjectsOf(items) {
		if s == without {
			continue
		}
		if list, kept := found[s]; kept {
			found[s] = append(list, it)
		} else {
			without = s
		}
	}
	all = make(map[subject]message, len(found))
	for s, list := range found {
		if len(list) > 0 { // else its problems are over meanwhile
			all[s] = messageOf(s, list)
		}
	}
	return all, leftOut
}

// subjectsOf yields the items that are to be reported, and whom they are about.
func subjectsOf(items iter.Seq[Item]) iter.Seq2[subject, Item] {
	return func(yield func(subject, Item) bool) {
		for it := range items {
			ref := it.Problem.Ref
			if ref.Kind == "" || ref.Name == "" || !it.Note && !it.Claim && it.Problem.Severity < validate.RulesLeftOut && !isWrittenByHand(ref.Kind) {
				continue
			}
			if !yield(subject{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name, local: it.Local}, it) {
				return
			}
		}
	}
}

// rank puts subjects first that no other node reports. Of those, and of the others, each namespace's first comes before the second of
// any: one with very many subjects leaves out its own, and none of a namespace with few. The order within a namespace stays.
func rank(subjects []subject) {
	type group struct {
		namespace string
		local     bool
	}
	sizes, place := map[group]int{}, make(map[subject]int, len(subjects))
	for _, s := range subjects {
		g := group{s.namespace, s.local}
		place[s], sizes[g] = sizes[g], sizes[g]+1
	}
	slices.SortStableFunc(subjects, func(a, b subject) int { return cmp.Or(localFirst(a, b), cmp.Compare(place[a], place[b])) })
}

func localFirst(a, b subject) int {
	switch {
	case a.local == b.local:
		return 0
	case a.local:
		return -1
	}
	return 1
}

func messageOf(s subject, items []Item) message {
	slices.SortFunc(items, func(a, b Item) int { // the worst first, for a note has little room
		return cmp.Or(cmp.Compare(b.Problem.Severity, a.Problem.Severity), cmp.Compare(text(a), text(b)))
	})
	worst, version := items[0].Problem.Severity, ""
	var problems []string
	for _, it := range items {
		version = max(version, it.Version)
		problems = append(problems, text(it))
	}
	m := message{action: "Validate", version: version}
	var begin string
	switch {
	case !slices.ContainsFunc(items, func(it Item) bool { return !it.Note }):
		m.reason, m.action = ReasonDataplane, "Start"
	case !slices.ContainsFunc(items, func(it Item) bool { return !it.Claim }):
		m.reason, m.action = ReasonNotOwned, "Enforce"
	case s.local:
		m.reason, m.action, begin = ReasonNotEnforced, "Enforce", "policy is not fully enforced: "
	case worst < validate.RulesLeftOut:
		m.reason, begin = ReasonPartlyIgnored, "used only in part: "
	case worst < validate.Rejected:
		m.reason, begin = ReasonRulesLeftOut, "used without the parts that cannot be read: "
	case isPolicy(s.kind): // whether an earlier version stays in force each problem says
		m.reason, begin = ReasonPolicyRejected, "not used: "
	default:
		m.reason, begin = ReasonObjectRejected, "not used: "
	}
	m.note = note(begin, slices.Compact(problems))
	return m
}

func isPolicy(kind string) bool { return strings.HasSuffix(kindName(kind), "NetworkPolicy") }

// isWrittenByHand reports whether a kind's objects are written by hand. There are too many of the other kinds, and
// their owners do not read about their oddities.
func isWrittenByHand(kind string) bool {
	return isPolicy(kind) || kindName(kind) == "FelixConfiguration"
}

// text is an item's problem, with the place where it is.
func text(it Item) string {
	if it.Problem.Field == "" {
		return it.Problem.Reason
	}
	return it.Problem.Field + ": " + it.Problem.Reason
}

// note joins as many problems as there is room for.
func note(begin string, problems []string) string {
	text := begin + clip(problems[0], maxNote-len(begin)-len("; and 1000000 more"))
	for i, p := range problems[1:] {
		more := fmt.Sprintf("; and %d more", len(problems)-1-i)
		longer := text + "; " + p
		if len(longer)+len("; and 1000000 more") > maxNote {
			return text + more
		}
		text = longer
	}
	return text
}

// clip cuts a text that is longer than limit bytes, not within a character.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	limit -= len("...")
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "..."
}
