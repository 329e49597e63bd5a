package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/match"
)

// errNoRoom is an ErrOverLimit that ends when others need less.
var errNoRoom = fmt.Errorf("%w", match.ErrOverLimit)

// Cost is what the policy of one endpoint-direction, or of all of a namespace's endpoints, takes of the resources that
// all endpoints of the node share.
type Cost struct {
	Rules    int // entries of ordered match tables
	Sets     int // address sets that they refer to, every distinct CIDR list of a rule included
	Prefixes int // in those CIDR lists
	Overlap  int // of those CIDR lists: how many one address is in, at most
	Bytes    int // of tables in the kernel; known once they are built, see Compiler.TooLarge
	Classes  int // that addresses in those CIDR lists make, if there are no others: combinations of lists
}

// The default limits of the cost of policies. A policy that endpoints share is counted once in each of their
// namespaces.
var (
	// PerDirection is for one direction of one endpoint.
	PerDirection = Cost{Rules: match.MaxEntries, Sets: 1 << 14, Prefixes: 1 << 16, Overlap: 1 << 8}
	// PerNamespace is for all endpoints on this node of one namespace.
	PerNamespace = Cost{Rules: 1 << 17, Sets: 1 << 15, Prefixes: 1 << 17, Overlap: 1 << 9, Bytes: 128 << 20}
	// PerNode is for all endpoints on this node.
	PerNode = Cost{Rules: 1 << 20, Sets: 1 << 17, Prefixes: 1 << 19, Overlap: 1 << 12, Bytes: 512 << 20}
	// Assured is what a namespace gets although others have used up PerNode.
	Assured = Cost{Rules: 1 << 13, Sets: 1 << 10, Prefixes: 1 << 12, Overlap: 1 << 6, Bytes: 4 << 20}
)

// Budget limits the cost of policies. A zero value is no limit.
type Budget struct {
	Direction, Namespace, Node, Assured Cost
	Room                                int // classes that the dataplane has room for; see crowd
}

// DefaultBudget is for a node whose maps hold so many chunks of classes (class_sets) and names of sets, and so many
// prefixes of a family. Half of them is left for members that authors of policy do not choose: pods, and addresses that
// selectors find.
func DefaultBudget(sets, prefixes int) Budget {
	b := Budget{Direction: PerDirection, Namespace: PerNamespace, Node: PerNode, Assured: Assured}
	for _, of := range []struct {
		cost  *Cost
		parts int
	}{{&b.Node, 2}, {&b.Namespace, 8}, {&b.Direction, 16}, {&b.Assured, 256}} {
		of.cost.Sets, of.cost.Prefixes = share(of.cost.Sets, sets, of.parts), share(of.cost.Prefixes, prefixes, of.parts)
	}
	return b
}

// WithClasses is the budget of a dataplane that has room for so many classes. Half of it is left for members that authors of policy
// do not choose.
func (b Budget) WithClasses(room int) Budget {
	b.Direction.Classes, b.Namespace.Classes = max(1, room/4), max(1, room/4)
	b.Node.Classes, b.Assured.Classes = max(1, room/2), max(1, room/128)
	b.Room = room
	return b
}

// Past returns the namespaces, sorted, whose endpoints' policies in c cost more than the budget has for a namespace, and whether those of all
// cost more than it has for a node. c has a budget of its own.
func (b Budget) Past(c *Compiler) (namespaces []string, node bool) {
	for name, a := range c.ledger.by {
		if a.cost.over(b.Namespace) != "" {
			namespaces = append(namespaces, name)
		}
	}
	slices.Sort(namespaces)
	return namespaces, c.ledger.node.over(b.Node) != ""
}

// share is a fraction of a map's entries, but never so few that it would mean no limit, and never more than most.
func share(most, entries, parts int) int { return min(most, max(1, entries/parts)) }

// costOf is what a program takes. Not ok: spend wants it to end.
func costOf(p *match.Program, spend spender) (c Cost, ok bool) {
	c = Cost{Rules: len(p.Rules), Sets: len(p.Sets)}
	for _, nets := range p.NetSets {
		c.Prefixes += len(nets)
	}
	c.Overlap, c.Classes, ok = overlapOf(p.NetSets, spend)
	return c, ok
}

func (c Cost) plus(other Cost) Cost {
	return Cost{c.Rules + other.Rules, c.Sets + other.Sets, c.Prefixes + other.Prefixes, c.Overlap + other.Overlap, c.Bytes + other.Bytes, c.Classes + other.Classes}
}

func (c Cost) minus(other Cost) Cost {
	return Cost{c.Rules - other.Rules, c.Sets - other.Sets, c.Prefixes - other.Prefixes, c.Overlap - other.Overlap, c.Bytes - other.Bytes, c.Classes - other.Classes}
}

// over names the part of c that is above the limit; empty: none is.
func (c Cost) over(limit Cost) string {
	for _, of := range []struct {
		what         string
		got, allowed int
	}{
		{"entries of match tables", c.Rules, limit.Rules},
		{"sets of addresses", c.Sets, limit.Sets},
		{"prefixes", c.Prefixes, limit.Prefixes},
		{"CIDR lists that overlap", c.Overlap, limit.Overlap},
		{"bytes of tables", c.Bytes, limit.Bytes},
		{"combinations of CIDR lists", c.Classes, limit.Classes},
	} {
		if of.allowed > 0 && of.got > of.allowed {
			return fmt.Sprintf("%d %s, limit %d", of.got, of.what, of.allowed)
		}
	}
	return ""
}

// ledger records the cost of every namespace's endpoints.
type ledger struct {
	budget Budget
	node   Cost // the sum of all accounts
	by     map[string]*account
	staged *ledger // of shadows, which have accounts of their own; nil: it is that one
}

// account is what the endpoints of one namespace use.
type account struct {
	cost  Cost
	users map[*program]int
}

func newLedger(b Budget) *ledger {
	of := Budget{Direction: b.Direction, Namespace: b.Namespace.part(), Node: b.Node.part(), Assured: b.Assured.part()}
	return &ledger{budget: b, by: map[string]*account{}, staged: &ledger{budget: of, by: map[string]*account{}}}
}

// stagedPart is the part of a budget that shadows have besides it.
const stagedPart = 4

// part is the limit for shadows where enforced policy has the limit c.
func (c Cost) part() Cost {
	of := func(n int) int {
		if n == 0 {
			return 0 // no limit
		}
		return max(1, n/stagedPart)
	}
	return Cost{of(c.Rules), of(c.Sets), of(c.Prefixes), of(c.Overlap), of(c.Bytes), of(c.Classes)}
}

// keeper is the ledger that has an account, and the name that people know it by.
func (l *ledger) keeper(account string) (*ledger, string) {
	if name, staged := strings.CutPrefix(account, stagedAccount); staged && l.staged != nil {
		return l.staged, name
	}
	return l, account
}

// room reports why a namespace may not take on a policy of this cost; nil: it may.
func (l *ledger) room(namespace string, cost Cost) error {
	l, namespace = l.keeper(namespace)
	total := cost
	if a := l.by[namespace]; a != nil {
		total = total.plus(a.cost)
	}
	if text := total.over(l.budget.Namespace); text != "" {
		return fmt.Errorf("policies of namespace %s's pods on this node: %w: %s", namespace, errNoRoom, text)
	}
	if text := l.node.plus(cost).over(l.budget.Node); text != "" && total.over(l.budget.Assured) != "" {
		return fmt.Errorf("policies of all pods on this node: %w: %s", errNoRoom, text)
	}
	return nil
}

// overDirection names the part of a cost that is above the limit for one direction of one endpoint; empty: none is.
func (l *ledger) overDirection(cost Cost) string { return cost.over(l.budget.Direction) }

// admit charges a namespace for one more endpoint-direction with the program, if there is room.
func (l *ledger) admit(namespace string, prog *program) error {
	l, namespace = l.keeper(namespace)
	if a := l.by[namespace]; a == nil || a.users[prog] == 0 {
		if err := l.room(namespace, prog.cost); err != nil {
			return err
		}
	}
	l.charge(namespace, prog)
	return nil
}

// charge charges a program without checking the limits: the program is already enforced.
func (l *ledger) charge(namespace string, prog *program) {
	l, namespace = l.keeper(namespace)
	a := l.by[namespace]
	if a == nil {
		a = &account{users: map[*program]int{}}
		l.by[namespace] = a
	}
	if a.users[prog]++; a.users[prog] == 1 {
		a.cost, l.node = a.cost.plus(prog.cost), l.node.plus(prog.cost)
	}
}

// accountsOf returns the accounts that are charged for a program, by name.
func (l *ledger) accountsOf(prog *program) (names []string) {
	for name, a := range l.by {
		if a.users[prog] > 0 {
			names = append(names, name)
		}
	}
	if l.staged == nil {
		return names
	}
	for _, name := range l.staged.accountsOf(prog) {
		names = append(names, stagedAccount+name)
	}
	return names
}

// release takes back one charge.
func (l *ledger) release(namespace string, prog *program) {
	l, namespace = l.keeper(namespace)
	a := l.by[namespace]
	if a.users[prog]--; a.users[prog] > 0 {
		return
	}
	delete(a.users, prog)
	a.cost, l.node = a.cost.minus(prog.cost), l.node.minus(prog.cost)
	if len(a.users) == 0 {
		delete(l.by, namespace)
	}
}
