package verify

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Difference is a packet that the kernel's policy does not judge as the objects demand.
type Difference struct {
	Packet    model.Packet
	Evaluator string // of the kernel's side
	Want      Decision
	Got       Decision
	Class     uint32       // of the remote address, in the kernel
	Some      []netip.Addr // remote addresses of its kind, that of Packet first
	signature Signature    // of the addresses in Some
}

// Decision is a verdict in words.
type Decision struct {
	Allow bool
	By    string // the rule, as model.RuleID.String returns it; empty: no rule, or it is not known
	// Passed and Logged are the rules on the way, as far as they are known.
	Passed, Logged []string
}

// Result is the result of comparing one direction of an endpoint.
type Result struct {
	Questions   int // packets judged
	Differences []Difference
	More        bool // the comparison ended early, because there were too many differences
}

const (
	// mostDifferences of one direction are reported.
	mostDifferences = 100
	// mostBytes bounds the memory for the packets that one policy distinguishes, and mostQuestions their number. The owner of a pod or
	// of its policies can exceed them. Then that endpoint is not verified, and all others are.
	mostBytes     = 64 << 20
	mostQuestions = 1 << 24
	// batchSize is the number of packets that are judged without a pause.
	batchSize = 64
)

// ErrTooMany is the error about a policy that distinguishes more packets than can be compared.
var ErrTooMany = errors.New("its policy distinguishes too many kinds of packets to compare all of them")

// Comparison compares policies of endpoints with those in the kernel, each combination once.
type Comparison struct {
	Atoms *Atoms
	Pairs []*Pair
	Of    func(netip.Addr) Signature // returns the signature of an endpoint's own address
	Pause func() error               // is called often; an error ends the comparison
	done  map[combination]map[string]bool
}

// combination identifies one comparison: the policy, the policy in the kernel, and the kind of the own address.
type combination struct {
	policy *model.DirectionPolicy
	kernel PolicyID
	own    string
	family uint8
}

// Compare compares the policy of one direction of an endpoint with the policy k in the kernel, for the endpoint's own addresses. kernel
// identifies k: a combination that was compared before is not compared again.
func (c *Comparison) Compare(p *model.DirectionPolicy, own []netip.Addr, k Policy, kernel PolicyID) (Result, error) {
	return c.compare(p, own, k, kernel, false)
}

// CompareVerdicts is Compare for a policy whose rules have other names in the kernel: it compares verdicts, but not rules.
func (c *Comparison) CompareVerdicts(p *model.DirectionPolicy, own []netip.Addr, k Policy, kernel PolicyID) (Result, error) {
	return c.compare(p, own, k, kernel, true)
}

func (c *Comparison) compare(p *model.DirectionPolicy, own []netip.Addr, k Policy, kernel PolicyID, unnamed bool) (Result, error) {
	if c.done == nil {
		c.done = map[combination]map[string]bool{}
	}
	d := newDemand(p)
	mine := NewAtoms()
	mine.AddPolicy(p)
	relevant := c.relevant(mine)
	run := &comparing{Comparison: c, demand: d, k: k, relevant: relevant, points: d.pointsOf(k), named: map[int]bool{}, unnamed: unnamed}
	for _, point := range run.points {
		run.named[point] = true
	}
	for _, a := range own {
		signature := project(c.Of(a), relevant)
		at := combination{p, kernel, signature.key(), Family(a)}
		if c.done[at] == nil {
			c.done[at] = map[string]bool{}
		}
		run.own(a, signature, c.done[at])
		if run.ended() || len(run.result.Differences) > 0 {
			delete(c.done, at) // so that the next comparison finds the differences again
		}
		if run.ended() {
			break
		}
	}
	return run.result, run.err
}

// relevant returns the numbers of a policy's atoms, ascending.
func (c *Comparison) relevant(mine *Atoms) Signature {
	var all Signature
	for id := range mine.sets {
		all = append(all, c.Atoms.sets[id])
	}
	for n := range mine.nets {
		all = append(all, c.Atoms.nets[n])
	}
	slices.Sort(all)
	return all
}

// project returns the atoms of a signature that are relevant.
func project(s, relevant Signature) Signature {
	var left Signature
	for _, atom := range s {
		if relevant.has(atom) {
			left = append(left, atom)
		}
	}
	return left
}

func (s Signature) key() string {
	b := make([]byte, 0, 4*len(s))
	for _, atom := range s {
		b = binary.LittleEndian.AppendUint32(b, atom)
	}
	return string(b)
}

// pointsOf returns the points of a policy's entries; -1: the entry has no name, -2: there is no such rule.
func (d *demand) pointsOf(k Policy) []int {
	kept := map[string]int{}
	for i, id := range d.points {
		kept[k.Kept(id.String())] = i
	}
	points := make([]int, 0, len(k.Texts()))
	for _, text := range k.Texts() {
		point, ok := kept[text]
		switch {
		case text == "":
			point = -1
		case !ok:
			point = -2
		}
		points = append(points, point)
	}
	return points
}

// comparing is one comparison under way.
type comparing struct {
	*Comparison
	demand   *demand
	k        Policy
	relevant Signature
	points   []int        // of entries
	named    map[int]bool // points that some entry has
	unnamed  bool         // names do not matter
	result   Result
	err      error
	batch    batch
}

// batch are questions with the verdicts that the objects demand. The answers of the kernel's policy are not known yet.
type batch struct {
	questions []Question
	pairs     []*Pair
	verdicts  []verdict // at least as many as questions: they are reused, with their lists
}

// next adds a question, and returns its verdict for the caller to fill in.
func (b *batch) next(q Question, p *Pair) *verdict {
	b.questions, b.pairs = append(b.questions, q), append(b.pairs, p)
	if len(b.verdicts) < len(b.questions) {
		b.verdicts = append(b.verdicts, verdict{})
	}
	return &b.verdicts[len(b.questions)-1]
}

// at returns an address with these atoms as rules see it.
func (c *Comparison) at(a netip.Addr, s Signature) place {
	return place{a, func(id model.SetID) bool { return s.has(c.Atoms.sets[id]) }, func(n netip.Prefix) bool { return s.has(c.Atoms.nets[n]) }}
}

// own compares all packets between one address of the endpoint and others.
func (c *comparing) own(a netip.Addr, s Signature, done map[string]bool) {
	family, mine := Family(a), c.at(a, s)
	ownFits := c.demand.fitting(func(r *model.MatchRule) bool { return addrFits(c.demand.own(r), mine) })
	columns := c.demand.columns(c.k, family, mine)
	rows := map[string]set{}
	if c.demand.room < 0 {
		c.err = ErrTooMany
		return
	}
	for _, pair := range c.Pairs {
		if pair.Family != family {
			continue
		}
		signature := project(pair.Signature, c.relevant)
		key := signature.key()
		kind := string(binary.LittleEndian.AppendUint32(nil, c.k.Row(pair.Class))) + key
		if done[kind] {
			continue
		}
		there := c.at(pair.Some[0], signature)
		row := rows[key]
		if row == nil {
			row = c.demand.fitting(func(r *model.MatchRule) bool { return addrFits(c.demand.remote(r), there) })
			for i := range row {
				row[i] &= ownFits[i]
			}
			rows[key] = row
		}
		if c.demand.room < 0 || c.result.Questions+len(columns) > mostQuestions {
			c.err = ErrTooMany
			return
		}
		if c.row(a, pair, there, row, columns); c.ended() {
			return
		}
		done[kind] = true
	}
	c.flush()
}

// row compares all packets between an own address and one kind of others.
func (c *comparing) row(own netip.Addr, pair *Pair, there place, row set, columns []column) {
	var packet model.Packet
	confirm := func(r *model.MatchRule) bool {
		port := packet.SrcPort
		if c.demand.direction == model.Egress {
			port = packet.DstPort
		}
		return portsFit(c.demand.remote(r), packet.Protocol, port, there.in)
	}
	for i := range columns {
		packet = columns[i].packet
		packet.Src, packet.Dst = pair.Some[0], own
		if c.demand.direction == model.Egress {
			packet.Src, packet.Dst = own, pair.Some[0]
		}
		c.demand.judge(0, row, columns[i].fits, confirm, c.batch.next(Question{pair.Class, packet}, pair))
		if len(c.batch.questions) == batchSize {
			if c.flush(); c.ended() {
				return
			}
		}
	}
}

func (c *comparing) ended() bool { return c.result.More || c.err != nil }

// flush gets the answers to the batch and compares them.
func (c *comparing) flush() {
	defer func() { c.batch.questions, c.batch.pairs = c.batch.questions[:0], c.batch.pairs[:0] }()
	if len(c.batch.questions) == 0 {
		return
	}
	if c.err = c.Pause(); c.err != nil {
		return
	}
	all, err := c.k.Judge(c.batch.questions)
	if c.err = err; err != nil {
		return
	}
	c.result.Questions += len(c.batch.questions)
	for e, answers := range all {
		for i := range answers {
			if answers[i].Skipped || c.agrees(&answers[i], &c.batch.verdicts[i]) {
				continue
			}
			q := c.batch.questions[i]
			c.result.Differences = append(c.result.Differences, Difference{Packet: q.Packet, Evaluator: c.k.Evaluators()[e],
				Want: c.wanted(&c.batch.verdicts[i]), Got: c.got(&answers[i], c.k.Where(e, q)), Class: q.Class, Some: c.batch.pairs[i].Some,
				signature: c.batch.pairs[i].Signature})
			if c.result.More = len(c.result.Differences) >= mostDifferences; c.result.More {
				return
			}
		}
	}
}
