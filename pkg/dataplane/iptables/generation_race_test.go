package iptables

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/model"
)

// overtaken is the kernel's table, in which packets change the mark of each connection after it was read and before it is written.
type overtaken struct {
	*conntrack.Conn
	judge func(conntrack.Entry)
}

func (o *overtaken) Remark(f conntrack.Family, filter conntrack.Filter, mask uint32, decide func(conntrack.Entry) (uint32, bool)) (int, error) {
	seen := map[conntrack.Tuple]bool{}
	return o.Conn.Remark(f, filter, mask, func(e conntrack.Entry) (uint32, bool) {
		if !seen[e.Original] {
			seen[e.Original] = true
			o.judge(e)
		}
		return decide(e)
	})
}

// A packet may be judged between the moments when the mark of its connection is read and replaced. The connection is judged once more then,
// whatever policy has found: it never has a number of a former policy again. Bits that belong to others stay as they are by then.
func TestAMarkThatChangesWhileItIsReplacedIsJudgedAgain(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	table, err := conntrack.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	marks, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	most := marks.MostGeneration()
	allowed := func(generation uint32) chains.Value {
		v, err := marks.Generation(generation)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	again, former, fresh := allowed(chains.ToBeJudged), allowed(most/2-1), allowed(most/2+1)
	denied := fresh.Value &^ (1 << 31) // without the flag passed
	const before, since, turned = 0x0007, 0x1230, 1 << 30
	met := map[uint16]uint32{1: fresh.Value | turned | since, 2: denied | since, 3: former.Value | since}
	var flows []conntrack.Flow
	for port := range met {
		flows = append(flows, conntrack.Flow{Timeout: time.Hour, Mark: former.Value | before, Original: conntrack.Tuple{
			Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: model.ProtoTCP, SrcPort: port, DstPort: 1}})
	}
	for _, err := range table.Insert(flows) {
		if err != nil {
			t.Fatal(err)
		}
	}
	races := &overtaken{table, func(e conntrack.Entry) {
		mark := func(conntrack.Entry) uint32 { return met[e.Original.SrcPort] }
		if err := table.SetMarks([]conntrack.Entry{e}, mark, ^uint32(0))[0]; err != nil {
			t.Error(err)
		}
	}}
	s := &static{flows: races, generation: generation{number: most/2 + 1, most: most}}
	s.base.Marks = marks
	if err := s.replacement(false)(); err != nil {
		t.Fatal(err)
	}
	left := 0
	err = table.Dump(conntrack.IPv4, conntrack.Filter{}, func(e conntrack.Entry) {
		left++
		if want := met[e.Original.SrcPort]&^again.Mask | again.Value; e.Mark != want {
			t.Errorf("connection %d has the mark %#x, want %#x: to be judged again", e.Original.SrcPort, e.Mark, want)
		}
	})
	if err != nil || left != len(met) {
		t.Errorf("%d connections, %v", left, err)
	}
}
