package pair

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// pair is both sides of one run.
type pair struct {
	t        *testing.T
	rand     *rand.Rand
	seed     uint64
	dir      string   // of the manifests of both
	sides    [2]*side // by BPF, by iptables
	docs     map[string]corpus.Document
	manifest string
	oracle   *oracle.Cluster
	edges    []uint16 // of the ranges of ports in policy
	round    int
	last     token
	ports    uint16
	sent     []*shot
	counts   map[string]int // what was sent, and each difference that is right
	opened   map[ends][]*shot
	held     fragmentsHeld
}

const (
	byBPF = iota
	byIPTables
)

// backends alternate, so that both have their share of seeds.
var backends = []string{"legacy", "nft"}

func newPair(t *testing.T, seed uint64) *pair {
	t.Helper()
	testutil.Privileged(t)
	testutil.RequireCommand(t, "iptables-restore")
	backend := backends[seed%2]
	if forced := os.Getenv("MARGAY_IPTABLES_BACKEND"); forced != "" {
		backend = forced
	}
	p := &pair{t: t, seed: seed, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 0)),
		docs: map[string]corpus.Document{}, counts: map[string]int{}, opened: map[ends][]*shot{}}
	flags := [][]string{{"--dataplane", "bpf", "--mid-flow-grace", "0s"}, {"--dataplane", "iptables", "--iptables-backend", backend}}
	if seed%4 >= 2 {
		flags[byBPF] = append(flags[byBPF], "--no-shortcut")
	}
	for i, name := range []string{"BPF", "iptables-" + backend} {
		p.sides[i] = newSide(t, name, p.dir, newBoard(), flags[i]...)
	}
	t.Logf("%s with %v, %s with %v", p.sides[0].name, flags[0], p.sides[1].name, flags[1])
	return p
}

// shot is one packet that both sides have sent.
type shot struct {
	what    string
	round   int
	from    place
	packet  testutil.Packet // as the BPF side has sent it; the other differs at most in what its node has translated
	k, tail token           // tail: of the last fragment, 0: it is whole
	swapped bool            // the last fragment was sent first
	place   place           // where it has to arrive
	found   [4]uint8        // the places where it and its tail have arrived on both sides, when it was judged
	want    *bool           // the oracle's word on whether it arrives; nil: it has none
	opening                 // of a first packet
	flow    *flow           // that it is of; nil: it is a first packet
	inFlow
}

// inFlow is what is known of a packet of a flow.
type inFlow struct {
	end            int  // that sends it
	ends           bool // RST or ABORT
	quotes, forged bool // it is an ICMP error; about something that was not sent
	authenticated  bool // it has an authentication header
	routed         bool // it has a routing header
}

// opening is what is known of a first packet of which policy alone decides.
type opening struct {
	target     netip.AddrPort // after translation; not valid: the oracle is not asked
	model      model.Packet
	before     []*shot // with the same ends
	turned     bool    // the oracle would allow a flow with these ends that the other one opens
	either     bool    // both ends have sent before, and policy allows one of the two directions
	unfollowed bool    // not both dataplanes follow such flows, and the ends were used before
}

// arrivals are the places where a shot and its tail have arrived so far.
func (p *pair) arrivals(x *shot) (all [4]uint8) {
	for i, s := range p.sides {
		all[2*i], all[2*i+1] = s.board.of(x.k).places, s.board.of(x.tail).places
	}
	return all
}

func (p *pair) token() token {
	p.last++
	return p.last
}

// fire sends shots on both sides. frames makes the frames of a shot on a side; nil means that it cannot be had there.
func (p *pair) fire(shots []*shot, frames func(*shot, int) [][]byte) {
	p.t.Helper()
	for i, s := range p.sides {
		var by [places][][]byte
		for _, x := range shots {
			by[x.from] = append(by[x.from], frames(x, i)...)
		}
		for from, list := range by {
			s.send(p.t, place(from), list)
		}
	}
	p.sent = append(p.sent, shots...)
	for _, s := range p.sides {
		s.fence(p.t)
	}
	p.settle(shots)
	for _, x := range shots {
		if wrong := p.wrong(x); wrong != "" {
			p.fail(x, wrong)
		}
		p.count(x)
	}
}

// Patience with what is under way.
const (
	quiet    = 20 * time.Millisecond
	patience = 10 * time.Second
)

// settle waits until nothing arrives any more and nothing is wrong, or for so long that it is.
func (p *pair) settle(shots []*shot) {
	start := time.Now()
	for {
		last := start
		for _, s := range p.sides {
			if at := s.board.quietSince(); at.After(last) {
				last = at
			}
		}
		calm := time.Since(last) > quiet
		if time.Since(start) > patience || calm && !slices.ContainsFunc(shots, func(x *shot) bool { return p.wrong(x) != "" }) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// finish looks at everything that was sent once more: something may have arrived late.
func (p *pair) finish() {
	p.t.Helper()
	for _, x := range p.sent {
		// On a machine that stands still for a while a packet may be late on both sides; then it is only missing in the count.
		if now := p.arrivals(x); now != x.found && [2]uint8(now[:2]) != [2]uint8(now[2:]) {
			p.fail(x, fmt.Sprintf("arrived late: %v, at first %v", now, x.found))
		}
	}
	var lines []string
	for what, n := range p.counts {
		lines = append(lines, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(lines)
	p.t.Logf("%d packets under %d policies\n%s", len(p.sent), p.round, strings.Join(lines, "\n"))
}

// maxFailures are printed; the policy of the first one, too.
const maxFailures = 5

func (p *pair) fail(x *shot, wrong string) {
	p.t.Helper()
	p.counts["FAILED"]++
	if n := p.counts["FAILED"]; n > maxFailures {
		return
	} else if n == 1 {
		p.t.Logf("policy of round %d:\n%s", p.round, p.manifest)
		for i, pod := range p.sides[byBPF].pods {
			p.t.Logf("by BPF dropped at pod %s so far: %v", podName(i), p.sides[byBPF].agent.Drops(pod))
		}
		if path := testutil.Getenv("MARGAY_E2E_PAIR_OUT"); path != "" {
			must(p.t, os.WriteFile(path, []byte(p.manifest), 0o600))
		}
	}
	p.t.Errorf("%s=%d, round %d (sent in %d): %s: %s\n%s", seedEnv, p.seed, p.round, x.round, x, wrong, p.history(x))
}

func (x *shot) String() string {
	q := x.packet
	if x.flow != nil {
		q = x.on(byBPF)
	}
	return fmt.Sprintf("%s from %s: %s", x.what, x.from, describe(q))
}

// history says what was sent with the same ends before, and what the oracle says of them now.
func (p *pair) history(x *shot) string {
	if x.flow != nil {
		return x.flow.history(p)
	}
	var b strings.Builder
	say := func(x *shot) {
		fmt.Fprintf(&b, "  round %d: %s: [%s] [%s]\n", x.round, x, names(p.sides[0].board.of(x.k)), names(p.sides[1].board.of(x.k)))
	}
	before := x.before
	if len(before) == 0 {
		before = slices.DeleteFunc(slices.Clone(p.sent), func(y *shot) bool { return y == x || !x.sameEnds(y) })
	}
	for _, y := range before {
		say(y)
	}
	say(x)
	if x.model.Src.IsValid() {
		fmt.Fprintf(&b, "  the oracle: %v, the other way %v\n", p.allows(x.model), x.turned)
	}
	return b.String()
}

// sameEnds reports whether two first packets are of the same flow.
func (x *shot) sameEnds(y *shot) bool {
	a, b := x.packet, y.packet
	return y.flow == nil && (a.Src == b.Src && a.Dst == b.Dst || a.Src == b.Dst && a.Dst == b.Src) && fmt.Sprintf("%+v", a.L4) == fmt.Sprintf("%+v", b.L4)
}

func describe(q testutil.Packet) string {
	l4 := fmt.Sprintf("%T%+v", q.L4, q.L4)
	if len(l4) > 160 {
		l4 = l4[:160] + "…"
	}
	if len(q.Extensions) > 0 {
		l4 = fmt.Sprint(q.Extensions, " ", l4)
	}
	return fmt.Sprintf("%s -> %s %s", q.Src, q.Dst, l4)
}
