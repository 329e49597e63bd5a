package hostile

import (
	"bytes"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// A pod sends fragments with long extension headers, and all but their Ethernet header in pages. The kernel copies the headers into a larger
// head before it holds a fragment, and counts that, too. (It held 394,400 bytes, and 254,400 were charged.)
func TestFragmentsWithHeadersInPagesAreChargedInFull(t *testing.T) {
	testcluster.NeedsBPF(t, "what a pod holds of the kernel's memory for reassembly is not bounded")
	s := newScene(t)
	s.AwaitPolicies(s.m, 0, 0)
	for _, length := range []int{257, 2 * 257, 5 * 257} {
		// Options that a receiver skips: of a type for experiments, with 255 bytes each.
		options := bytes.Repeat(append([]byte{0x1e, 255}, make([]byte, 255)...), length/257)
		options = append(options, make([]byte, (8-(2+length)%8)%8)...) // Pad1
		var frames [][]byte
		for i := range uint32(50) {
			p := s.from(s.m, s.n1.Host, true, testutil.UDP{SrcPort: 1000, DstPort: 99})
			p.ID, p.MoreFragments, p.Payload = uint32(length)<<8|i, true, make([]byte, 8)
			p.Extensions = []testutil.Extension{{Header: 60, Body: options}}
			frames = append(frames, frame(s.m, p))
		}
		before, _ := s.reassembly(t, true)
		if err := traffic.SendByRing(s.m.Host, "eth0", frames); err != nil {
			t.Fatal(err)
		}
		held, charged := before, uint64(0)
		testutil.WaitFor(t, soon, "the node to hold the fragments", func() bool {
			held, charged = s.reassembly(t, true)
			return held >= before+50*1024
		})
		t.Logf("with headers of %d bytes: the kernel holds %d bytes, %d are charged", length, held, charged)
		if held > charged {
			t.Errorf("with headers of %d bytes: the kernel holds %d bytes, and only %d are charged", length, held, charged)
		}
	}
}
