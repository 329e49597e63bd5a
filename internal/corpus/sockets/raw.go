package sockets

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

type receiverKey struct {
	host     *lab.Host
	protocol uint8
	v6       bool
}

// raw sends a packet of a protocol without sockets and looks for it behind all filters of the destination.
func (t *Traffic) raw(from, to *lab.Host, p model.Packet) (func(time.Duration) (bool, error), error) {
	k := receiverKey{to, p.Protocol, p.Dst.Is6()}
	r := t.receivers[k]
	if r == nil {
		var err error
		if r, err = traffic.ReceiveRaw(to, k.protocol, k.v6); err != nil {
			return nil, err
		}
		if t.receivers == nil {
			t.receivers = map[receiverKey]*traffic.RawReceiver{}
		}
		t.receivers[k] = r
	}
	t.tokens++
	token := binary.BigEndian.AppendUint64([]byte("token of a check"), t.tokens)
	packet := testutil.Packet{Src: p.Src, Dst: p.Dst, Payload: token}
	sport := p.SrcPort
	if sport == anyPort { // the flow of an earlier check must not matter
		sport = uint16(20000 + t.tokens)
	}
	switch p.Protocol {
	case model.ProtoSCTP:
		packet.L4, packet.Payload = testutil.SCTP{SrcPort: sport, DstPort: p.DstPort}, sctpInit(token)
	case model.ProtoUDPLite:
		packet.L4 = testutil.UDP{SrcPort: sport, DstPort: p.DstPort, Lite: true}
	case model.ProtoICMP, model.ProtoICMPv6:
		packet.L4 = testutil.ICMP{Type: p.ICMPType, Code: p.ICMPCode}
	default:
		packet.L4 = testutil.Raw(p.Protocol)
	}
	return func(timeout time.Duration) (bool, error) {
		if err := traffic.SendRaw(from, packet.IP(), p.Dst); err != nil {
			return true, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := r.Wait(ctx, token)
		return err == nil, err
	}, nil
}

// sctpInit is an INIT chunk with a parameter that no implementation knows and every one may skip.
func sctpInit(parameter []byte) []byte {
	chunk := []byte{1, 0, 0, 0, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}
	chunk = binary.BigEndian.AppendUint16(chunk, 0xbfff)
	chunk = binary.BigEndian.AppendUint16(chunk, uint16(4+len(parameter)))
	chunk = append(chunk, parameter...)
	binary.BigEndian.PutUint16(chunk[2:], uint16(len(chunk)))
	return chunk
}
