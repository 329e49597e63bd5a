package traffic_test

import (
	"testing"
	"time"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

func TestManyFramesAtOnceAllArrive(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	pod := labtest.Pod(t, n, "pod")
	udp := labtest.ListenUDP(t, n.Host, 53)
	sender := labtest.Must[*traffic.FrameSender](t)(traffic.OpenFrameSender(pod.Host, "eth0"))
	frames := make([][]byte, 150) // several system calls, less than a queue
	for i := range frames {
		frames[i] = testutil.Packet{
			SrcMAC: pod.MAC(), DstMAC: lab.HostMAC, Src: pod.Addr4(), Dst: n.Addr4(),
			L4: testutil.UDP{SrcPort: uint16(1000 + i), DstPort: 53},
		}.Bytes()
	}
	if err := sender.Send(frames); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "all frames", func() bool { return udp.Received() == uint64(len(frames)) })
	if err := sender.Close(); err != nil {
		t.Error(err)
	}
	if err := sender.Send(frames); err == nil {
		t.Error("a closed sender sends")
	}
}
