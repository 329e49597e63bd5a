package traffic_test

import (
	"context"
	"errors"
	"testing"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// Packets of protocols without sockets go as they are and are seen where they are delivered, only there.
func TestRawPacketsGoFromHostToHost(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	from, to := labtest.Pod(t, n, "from"), labtest.Pod(t, n, "to")
	for _, v6 := range []bool{false, true} {
		receiver := labtest.Must[*traffic.RawReceiver](t)(traffic.ReceiveRaw(to.Host, testutil.ProtoSCTP, v6))
		other := labtest.Must[*traffic.RawReceiver](t)(traffic.ReceiveRaw(n.Host, testutil.ProtoSCTP, v6))
		p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: testutil.SCTP{SrcPort: 1, DstPort: 2}, Payload: []byte("token")}
		if err := traffic.SendRaw(from.Host, p.IP(), p.Dst); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), labtest.Soon)
		defer cancel()
		if err := receiver.Wait(ctx, []byte("token")); err != nil {
			t.Error(err)
		}
		short, cancelShort := context.WithTimeout(context.Background(), labtest.Never)
		defer cancelShort()
		if err := other.Wait(short, []byte("token")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the node that forwards it received it: %v", err)
		}
	}
}
