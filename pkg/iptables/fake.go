package iptables

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Fake is a kernel for tests: it has the tables and chains that were written to it, refuses the structures that a kernel refuses,
// and judges no packets. Safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	tables map[string]*fakeTable // by family and name
	count  uint32                // of changes
	log    []string
	fail   []error
	held   bool // the lock
}

// fakeTable has user-defined and built-in chains in the order in which they were made.
type fakeTable struct {
	order  []string
	rules  map[string][]string
	policy map[string]string
	change uint32
}

// NewFake returns a kernel without rules.
func NewFake() *Fake { return &Fake{tables: map[string]*fakeTable{}} }

// Tools returns the commands of a backend that work on this kernel.
func (f *Fake) Tools(backend Backend) *Tools {
	return &Tools{Backend: backend, Version: "iptables fake (" + string(backend) + ")", kernel: fakeKernel{f, backend}}
}

// Transactions returns those that were carried out, as text.
func (f *Fake) Transactions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Fail makes the next transactions fail, each with one of the errors, without effect; a nil lets one through.
func (f *Fake) Fail(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = append(f.fail, errs...)
}

// Lock holds the lock of iptables until it is called with false: transactions wait.
func (f *Fake) Lock(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
}

// Load applies a text as if another process had passed it to iptables-restore --noflush, as one transaction.
func (f *Fake) Load(family Family, transaction string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.carryOut(family, transaction)
}

// Save returns the table as iptables-save prints it.
func (f *Fake) Save(family Family, table string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table(family, table).save(table)
}

// Reset removes all chains, as nft flush ruleset or a reboot does.
func (f *Fake) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	clear(f.tables)
}

var fakeBuiltIn = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"raw":    {"PREROUTING", "OUTPUT"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
}

func (f *Fake) table(family Family, name string) *fakeTable {
	key := family.String() + " " + name
	if f.tables[key] == nil {
		t := &fakeTable{rules: map[string][]string{}, policy: map[string]string{}, change: f.count}
		for _, chain := range fakeBuiltIn[name] {
			t.order = append(t.order, chain)
			t.policy[chain] = "ACCEPT"
			t.rules[chain] = nil
		}
		f.tables[key] = t
	}
	return f.tables[key]
}

func (t *fakeTable) save(name string) string {
	var b strings.Builder
	b.WriteString("*" + name + "\n")
	for _, chain := range t.order {
		policy := t.policy[chain]
		if policy == "" {
			policy = "-"
		}
		b.WriteString(":" + chain + " " + policy + " [0:0]\n")
	}
	for _, chain := range t.order {
		for _, rule := range t.rules[chain] {
			b.WriteString("[0:0] -A " + chain + " " + rule + "\n")
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func (t *fakeTable) clone() *fakeTable {
	c := &fakeTable{slices.Clone(t.order), maps.Clone(t.rules), maps.Clone(t.policy), t.change}
	for name, rules := range c.rules {
		c.rules[name] = slices.Clone(rules)
	}
	return c
}

// carryOut applies one transaction of one table, or nothing of it.
func (f *Fake) carryOut(family Family, transaction string) error {
	var t *fakeTable
	var name string
	for i, line := range strings.Split(strings.TrimSuffix(transaction, "\n"), "\n") {
		var err error
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			name = line[1:]
			t = f.table(family, name).clone()
		case t == nil:
			err = fmt.Errorf("outside of a table")
		case line == "COMMIT":
			if err = t.check(); err == nil {
				f.count++
				t.change++
				f.tables[family.String()+" "+name] = t
				t = nil
			}
		default:
			err = t.line(line)
		}
		if err != nil {
			return &RefusedError{Command: "fake-restore", Line: i + 1, Text: line, Message: err.Error()}
		}
	}
	return nil
}

// line carries out one line.
func (t *fakeTable) line(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	if verb[0] == ':' {
		name := verb[1:]
		if _, exists := t.rules[name]; !exists {
			t.order = append(t.order, name)
		}
		t.rules[name] = nil
		return ruleset.CheckName(name)
	}
	name, rule, _ := strings.Cut(rest, " ")
	rules, exists := t.rules[name]
	if !exists {
		return fmt.Errorf("chain %s does not exist", name)
	}
	switch verb {
	case "-A":
		t.rules[name] = append(rules, rule)
	case "-I":
		place, text, _ := strings.Cut(rule, " ")
		n, err := strconv.Atoi(place)
		if err != nil {
			n, text = 1, rule
		}
		if n < 1 || n > len(rules)+1 {
			return fmt.Errorf("no place %d", n)
		}
		t.rules[name] = slices.Insert(rules, n-1, text)
	case "-D":
		i := slices.IndexFunc(rules, func(r string) bool { return ruleset.Canonical(r) == ruleset.Canonical(rule) })
		if i < 0 {
			return fmt.Errorf("no such rule")
		}
		t.rules[name] = slices.Delete(rules, i, i+1)
	case "-F":
		t.rules[name] = nil
	case "-X":
		delete(t.rules, name)
		t.order = slices.DeleteFunc(t.order, func(n string) bool { return n == name })
	default:
		return fmt.Errorf("unknown command %s", verb)
	}
	return nil
}

// check returns the error with which the kernel would refuse the table at COMMIT.
func (t *fakeTable) check() error {
	var g ruleset.Graph
	for name, rules := range t.rules {
		g.Set(ruleset.Chain{Name: name, Rules: rules})
	}
	return g.Check(nil, 0)
}

// fakeKernel is the Fake as Tools see it.
type fakeKernel struct {
	*Fake
	backend Backend
}

func (f fakeKernel) save(_ context.Context, family Family, table string, _ bool) (string, error) {
	return f.Save(family, table), nil
}

func (f fakeKernel) restore(ctx context.Context, family Family, transaction string) (time.Duration, error) {
	start := time.Now()
	for f.locked() {
		select {
		case <-ctx.Done():
			return time.Since(start), &LockedError{Path: "fake", Waited: time.Since(start), Err: context.Cause(ctx)}
		case <-time.After(time.Millisecond):
		}
	}
	waited := time.Since(start)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fail) > 0 {
		err := f.fail[0]
		f.fail = f.fail[1:]
		if err != nil {
			return waited, err
		}
	}
	if err := f.carryOut(family, transaction); err != nil {
		return waited, err
	}
	f.log = append(f.log, transaction)
	return waited, nil
}

func (f fakeKernel) has(context.Context, Family, string, string, string) (bool, error) {
	return false, nil // it prints all rules
}

func (f fakeKernel) hidden(Family, string) ([]hiddenRule, error) { return nil, nil }

func (f fakeKernel) misplaced(Family, string, *map[string][]string) error { return nil }

func (f fakeKernel) handles(Family, string, string, func(string) bool) ([]uint64, error) {
	return nil, nil
}

func (f fakeKernel) discard(Family, string, map[string][]uint64) error { return nil }

func (f fakeKernel) locked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

func (f fakeKernel) stamp(family Family, table string) (Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.backend == NFT {
		return Stamp{Generation: f.count, Writes: f.table(family, table).change}, nil
	}
	text := f.table(family, table).save(table)
	return Stamp{Entries: uint32(strings.Count(text, "\n[0:0] -A") + 2*strings.Count(text, " - [0:0]\n"))}, nil
}

func (f fakeKernel) activate(Family, string) error { return nil } // its tables are never dormant

func (f fakeKernel) contents(family Family, table string) (digest [16]byte, err error) {
	if f.backend == Legacy {
		sum := sha256.Sum256([]byte(f.Save(family, table)))
		copy(digest[:], sum[:])
	}
	return digest, nil
}
