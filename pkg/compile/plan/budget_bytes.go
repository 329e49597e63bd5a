package plan

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
)

// bytesOf is what a table takes in the kernel. own leaves out its rows by class: they are as many as addresses of all namespaces have classes, so
// that a tenant with very many makes tables of others larger.
func bytesOf(t *table.Table) (own, all int) {
	all = t.Bytes() + len(t.Program.Rules)*ruleBytes
	return all - len(t.Rows)*blockBytes, all
}

// ruleBytes is the size of one entry of an ordered match table, blockBytes that of one value with rows.
var ruleBytes, blockBytes = binary.Size(bpf.Rule{}), binary.Size(bpf.CellBlock{})

// bytesUsed are the bytes of tables that the endpoints of each namespace are judged by, without the rows by class, and the sum over all
// namespaces, with them.
type bytesUsed struct {
	by    map[string]int
	nodes [2]int                // of enforced policy, and of shadows
	users map[*program][]string // accounts, in order
}

// node is where the sum is that an account is part of.
func (u *bytesUsed) node(account string) *int {
	if strings.HasPrefix(account, stagedAccount) {
		return &u.nodes[1]
	}
	return &u.nodes[0]
}

func (u *bytesUsed) add(namespace string, t *table.Table) {
	own, all := bytesOf(t)
	u.by[namespace] += own
	*u.node(namespace) += all
}

// TooLarge returns those new tables of the last plan for which no namespace of their endpoints has room, and why: for
// Withhold. A table that takes the place of a smaller one of the same policy always has room.
func (c *Compiler) TooLarge(p Plan) map[table.ID]error {
	asked := map[table.ID]bool{}
	for _, t := range p.Tables {
		asked[t.ID] = true
	}
	for _, prog := range c.back.allGrown() {
		delete(asked, prog.id())
	}
	if len(asked) == 0 {
		return nil
	}
	used := c.endpoints.bytesUsed(asked)
	refused := map[table.ID]error{}
	for _, prog := range c.programs.all() { // the older first
		if prog.table == nil || !asked[prog.table.ID] {
			continue
		}
		own, all := bytesOf(prog.table)
		var err error
		for _, namespace := range used.users[prog] {
			if err = c.ledger.roomFor(namespace, used.by[namespace]+own, *used.node(namespace)+all); err == nil {
				break
			}
		}
		if err != nil {
			refused[prog.table.ID] = err
			continue
		}
		for _, namespace := range used.users[prog] {
			used.add(namespace, prog.table)
		}
	}
	return refused
}

// roomFor reports why a namespace may not have tables of so many bytes, of so many on the node; nil: it may.
func (l *ledger) roomFor(namespace string, bytes, node int) error {
	l, namespace = l.keeper(namespace)
	if text := (Cost{Bytes: bytes}).over(l.budget.Namespace); text != "" {
		return fmt.Errorf("policies of namespace %s's pods on this node: %w: %s", namespace, match.ErrOverLimit, text)
	}
	if text := (Cost{Bytes: node}).over(l.budget.Node); text != "" && bytes > l.budget.Assured.Bytes {
		return fmt.Errorf("policies of all pods on this node: %w: %s", match.ErrOverLimit, text)
	}
	return nil
}
