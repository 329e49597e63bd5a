package calc

import (
	"container/list"
	"fmt"
	"strings"
)

// MaxNetsFound is how many prefixes of the network sets of one namespace the selectors of another one's policies, or of its own, find
// together. The set of each selector has its own copy of them, so that 8,192 selectors, which find nothing when they come, would find
// a thousand million prefixes when the labels of a network set change. It is as much as they may find when they come: a network set that
// policies were admitted with stays in their sets when it changes a little. Rules fail closed for those that are left out (coarse.go).
const MaxNetsFound = MaxFound

// netsFound counts the prefixes of network sets that definitions have in their sets. A network set for which there is no room is left
// out of a definition until there is.
type netsFound struct {
	most  int
	spent map[pairing]int
	room  *room
	short map[*definition]struct{} // something is left out of them

	left    *list.List                // the *items that are, and maybe some that are not any more, in their turn to be looked at
	lacking map[string]map[string]int // who pays for how many definitions that network sets of a namespace are left out of, by that
	untried int                       // so many of left were not looked at since there has been more room
	tries   int                       // mostTried
}

// pairing is whose selectors find whose network sets.
type pairing struct{ account, namespace string }

// taken are the network sets of one namespace in a definition.
type taken struct {
	items map[*item]struct{}
	nets  int
	left  int // network sets that are left out

	crowded bool // at least one of those has no room because who pays for the definition finds too many prefixes
}

func newNetsFound(r *room) *netsFound {
	return &netsFound{most: MaxNetsFound, room: r, spent: map[pairing]int{}, short: map[*definition]struct{}{}, left: list.New(), lacking: map[string]map[string]int{}, tries: mostTried}
}

// isGlobal reports whether an account is that of policies without a namespace, for which there is no limit.
func isGlobal(account string) bool { return account == "" || account == stagedAccount }

// join has an account pay for a definition, and leave ends that.
func (f *netsFound) join(account string, d *definition) {
	put(&d.accounts, account, struct{}{})
	for namespace, of := range d.taken {
		f.spend(pairing{account, namespace}, of.nets)
		if of.left > 0 {
			f.lack(account, namespace, 1)
		}
	}
}

func (f *netsFound) leave(account string, d *definition) {
	delete(d.accounts, account)
	for namespace, of := range d.taken {
		f.spend(pairing{account, namespace}, -of.nets)
		if of.left > 0 {
			f.lack(account, namespace, -1)
		}
	}
}

func (f *netsFound) spend(p pairing, n int) {
	f.room.freed = f.room.freed || n < 0
	if f.spent[p] += n; f.spent[p] == 0 {
		delete(f.spent, p)
	}
}

// of is what a definition has of a namespace.
func (d *definition) of(namespace string) *taken {
	of := d.taken[namespace]
	if of == nil {
		of = &taken{items: map[*item]struct{}{}}
		put(&d.taken, namespace, of)
	}
	return of
}

// add notes that a definition has n more prefixes of a namespace's network sets, or so many fewer.
func (f *netsFound) add(d *definition, namespace string, n int) {
	d.of(namespace).nets += n
	for account := range d.accounts {
		f.spend(pairing{account, namespace}, n)
	}
}

// isRoom reports whether one of those who pay for a definition has room for n prefixes more. A new one is charged when it is made.
func (f *netsFound) isRoom(d *definition, namespace string, n int) bool {
	if len(d.accounts) == 0 || n <= 0 {
		return true
	}
	for account := range d.accounts {
		if f.isRoomOf(account, namespace, n) {
			return true
		}
	}
	return false
}

func (f *netsFound) isRoomOf(account, namespace string, n int) bool {
	return isGlobal(account) || f.spent[pairing{account, namespace}]+n <= f.most
}

// note records that an item joins a definition, or with -1 leaves it, and reports whether its addresses are to be counted in, or out.
func (f *netsFound) note(d *definition, it *item, delta int32) bool {
	n := it.Value.nets()
	if n == 0 {
		return true
	}
	namespace, _ := namespaceOf(it.Group())
	of := d.of(namespace)
	_, has := of.items[it]
	switch {
	case delta > 0 && (!f.room.hasFor(it) || !f.isRoom(d, namespace, n)):
		of.crowded = of.crowded || !f.isRoom(d, namespace, n)
		f.room.short = f.room.short || !f.room.hasFor(it)
		f.omit(d, namespace, of, 1)
		if it.Value.extra.left == nil {
			it.Value.extra.left = f.left.PushBack(it)
		}
		return false
	case delta > 0:
		of.items[it] = struct{}{}
		f.room.hold(it)
		f.add(d, namespace, n)
	case has:
		delete(of.items, it)
		f.room.drop(it)
		f.add(d, namespace, -n)
	default:
		f.omit(d, namespace, of, -1)
	}
	if len(of.items)+of.left == 0 {
		delete(d.taken, namespace)
	}
	return delta > 0 || has
}

// has reports whether the prefixes of a network set are counted in the set of a definition.
func (d *definition) has(namespace string, it *item) bool {
	of := d.taken[namespace]
	if of == nil {
		return false
	}
	_, has := of.items[it]
	return has
}

// undefine is for a definition that goes.
func (f *netsFound) undefine(d *definition) {
	for _, of := range d.taken {
		for it := range of.items {
			f.room.drop(it)
		}
	}
	d.taken = nil
	delete(f.short, d)
}

// crowded are the pairings for which network sets are left out.
func (f *netsFound) crowded() map[pairing]bool {
	all := map[pairing]bool{}
	for d := range f.short {
		for namespace, of := range d.taken {
			for account := range d.accounts {
				if of.crowded && !isGlobal(account) {
					all[pairing{account, namespace}] = true
				}
			}
		}
	}
	return all
}

// isShort reports whether something is left out of a definition.
func (d *definition) isShort() bool {
	for _, of := range d.taken {
		if of.left > 0 {
			return true
		}
	}
	return false
}

// failsClosed is what it means that a network set is left out.
const failsClosed = "rules that allow by it do not match, rules that deny by it match wide prefixes around it"

// problem is what a pairing means for who pays.
func (p pairing) problem(most int) Problem {
	account, of := p.account, "the selectors of its policies"
	if name, staged := strings.CutPrefix(account, stagedAccount); staged {
		account, of = name, "the selectors of its staged policies"
	}
	whose := "the network sets of namespace " + p.namespace
	if p.namespace == "" {
		whose = "global network sets"
	}
	return Problem{Kind: LeftOut, Namespace: account, Object: "Namespace " + account, Text: fmt.Sprintf(
		"%s find more than %d prefixes in %s, added up, and some of these sets are left out: %s", of, most, whose, failsClosed)}
}
