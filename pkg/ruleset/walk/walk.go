// Package walk computes what a ruleset of iptables does to one packet: verdict, marks, and the rules on the way. It is written from
// the manual of iptables and knows nothing of who wrote the rules, so it can prove that rules read back from the kernel mean
// what they should.
//
//   - walk.go: a packet's way through chains; packet.go: what is known of the packet, and what IP sets answer
//   - tests.go: what the rules of a chain ask of packets; residue.go: which rules are left for packets of which a part is known
//   - compile.go: rules to functions; basic.go, ports.go, marks.go, others.go: what matches mean; targets.go: what targets do
//
// A rule with anything that is unknown here is an error for the packet that comes to it, never a guess.
package walk

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Verdict is what became of a packet.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota + 1
	Drop
	Reject   // dropped, and the sender is answered
	Returned // the packet came to the end of a user-defined chain in which its walk began
)

var verdictNames = [...]string{Accept: "accept", Drop: "drop", Reject: "reject", Returned: "return"}

// String returns the verdict as a word.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) && verdictNames[v] != "" {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Step is a rule that matched: the first of a chain has Index 0. A policy of a built-in chain that decided has Index -1.
type Step struct {
	Table, Chain string
	Index        int
}

// Result is what a walk found.
type Result struct {
	Verdict  Verdict
	Answer   string // of Reject: "tcp-reset"
	Mark     uint32 // of the packet, at the end
	ConnMark uint32 // of its connection, at the end; 0 if it has none
	Path     []Step // the rules that matched, in order
}

// Stage is a chain through which a packet goes: a built-in one, or a user-defined one from which the walk is to begin.
type Stage struct {
	Table *Table
	Chain string
}

// UnknownError: the packet came to a rule whose meaning is not known here.
type UnknownError struct {
	Step
	Err error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("table %s, chain %s, rule %d: %v", e.Table, e.Chain, e.Index+1, e.Err)
}

// Unwrap returns what is unknown.
func (e *UnknownError) Unwrap() error { return e.Err }

var errEndless = errors.New("the packet goes round in circles")

// A walk is bounded: no packet passes so many rules, or goes so deep, in a ruleset that a kernel has taken.
const (
	mostSteps = 1 << 20
	mostDepth = 1 << 12
)

// Walk sends a packet through the stages in their order, "mangle FORWARD, filter FORWARD", until one does not accept it. The packet
// is not changed. The error is an *UnknownError, or one of sets.
func Walk(stages []Stage, p Packet, sets Sets) (Result, error) {
	return new(Walker).Walk(stages, p, sets)
}

// Walker sends many packets, one after the other, and uses its memory again: the Path of a Result is valid until the next call. It is
// not safe for concurrent use.
type Walker struct {
	state      state
	connection Connection
}

// Walk is the function Walk.
func (w *Walker) Walk(stages []Stage, p Packet, sets Sets) (Result, error) {
	w.state = state{packet: p, sets: sets, steps: mostSteps, path: w.state.path[:0]}
	s := &w.state
	if p.Connection != nil {
		w.connection = *p.Connection
		s.packet.Connection = &w.connection
	}
	r := Result{Verdict: Accept}
	for _, stage := range stages {
		var err error
		r.Verdict, err = s.stage(stage)
		if err != nil {
			return Result{}, err
		}
		if r.Verdict != Accept && r.Verdict != Returned {
			break
		}
	}
	r.Answer, r.Path, r.Mark = s.answer, s.path, s.packet.Mark
	if s.packet.Connection != nil {
		r.ConnMark = s.packet.Connection.Mark
	}
	return r, nil
}

// state is a packet on its way.
type state struct {
	packet Packet
	sets   Sets
	path   []Step
	answer string
	steps  int
	depth  int
}

func (s *state) stage(stage Stage) (Verdict, error) {
	c := stage.Table.chains[stage.Chain]
	if c == nil {
		return 0, fmt.Errorf("table %s has no chain %s", stage.Table.name, stage.Chain)
	}
	verdict, err := s.chain(stage.Table, c)
	if err != nil || verdict != Returned || c.policy == 0 {
		return verdict, err
	}
	s.path = append(s.path, Step{stage.Table.name, c.name, -1})
	return c.policy, nil
}

// chain walks one chain. It returns Returned at its end: a packet that came by a jump then goes on after that rule, one that came by
// a goto where the chain with the goto would have returned to.
func (s *state) chain(t *Table, c *chain) (Verdict, error) {
	if s.depth++; s.depth > mostDepth {
		return 0, errEndless
	}
	defer func() { s.depth-- }()
	for i := range c.rules {
		r := &c.rules[i]
		if s.steps--; s.steps < 0 {
			return 0, errEndless
		}
		step := Step{t.name, c.name, i}
		matched, err := r.matches(s)
		if err != nil {
			return 0, &UnknownError{step, err}
		}
		if !matched {
			continue
		}
		s.path = append(s.path, step)
		if r.to != nil {
			verdict, err := s.chain(t, r.to)
			if err != nil || r.isGoto || verdict != Returned {
				return verdict, err
			}
			continue
		}
		verdict, err := r.act(s)
		if err != nil {
			return 0, &UnknownError{step, err}
		}
		if verdict != 0 {
			return verdict, nil
		}
	}
	return Returned, nil
}

// Table is a table made ready for walks. It is safe for concurrent use.
type Table struct {
	name   string
	chains map[string]*chain
}

// chain is one chain; policy is 0 for user-defined ones.
type chain struct {
	name   string
	policy Verdict
	rules  []rule
	uses   uses // of its rules, and of those of the chains that they go to
}

// NewTable makes a table ready. A rule that it cannot read is an error for the packets that come there, and for no others: chains of
// others may have any rules.
func NewTable(saved *ruleset.Saved) *Table {
	t, _ := NewTableWith(saved, func() error { return nil })
	return t
}

// NewTableWith is NewTable, and calls pause between chains: its error ends the work.
func NewTableWith(saved *ruleset.Saved, pause func() error) (*Table, error) {
	t := &Table{name: saved.Name, chains: make(map[string]*chain, len(saved.Chains))}
	for i := range saved.Chains {
		c := &saved.Chains[i]
		t.chains[c.Name] = &chain{name: c.Name, policy: policy(c.Policy)}
	}
	c := compiler{table: t, parts: map[string]match{}}
	for i := range saved.Chains {
		from := &saved.Chains[i]
		to := t.chains[from.Name]
		to.rules = make([]rule, len(from.Rules))
		for j := range from.Rules {
			to.rules[j] = c.rule(from.Rules[j].Text)
		}
		if err := pause(); err != nil {
			return nil, err
		}
	}
	for _, c := range t.chains {
		c.sum()
	}
	return t, nil
}

func policy(text string) Verdict {
	switch text {
	case "ACCEPT":
		return Accept
	case "DROP":
		return Drop
	}
	return 0
}
