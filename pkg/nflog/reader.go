// Package nflog reads copies of packets that rules `-j NFLOG --nflog-group N` send to a process, over netlink and without
// a binary. Copies are best effort: the kernel drops them when the reader is slow. The Reader reads at most as many per second as
// its user allows, so that a pod which causes many copies costs the agent a bounded share of a CPU.
package nflog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Packet is a copy of a packet. Its Payload is valid until the function it was passed to returns.
type Packet struct {
	Prefix  string // --nflog-prefix of the rule
	Mark    uint32
	In, Out uint32 // numbers of interfaces, 0: there is none at the hook
	Hook    uint8  // 0 PREROUTING, 1 INPUT, 2 FORWARD, 3 OUTPUT, 4 POSTROUTING
	Family  uint8  // 2 IPv4, 10 IPv6
	Payload []byte // from the IP header on, at most Options.CopyRange bytes
}

// Options of a Reader.
type Options struct {
	Group     uint16
	CopyRange uint32        // bytes of each packet
	Batch     uint32        // copies that the kernel collects before it sends them; 0 and 1: each at once
	Delay     time.Duration // how long it collects at most; in steps of 10 ms
	Buffer    int           // bytes of copies that can wait; 0: the node's default
	Rate      int           // copies read per second; 0: no bound
}

// Stats are counts since a Reader was opened.
type Stats struct {
	Read uint64 // copies that were passed on
	Lost uint64 // copies that the kernel made and dropped before the last copy that was read
}

// ErrBusy means that the group cannot be read; the kernel has one error for both causes.
var ErrBusy = errors.New("another process reads this group, or the process lacks the capability NET_ADMIN")

// ErrUnsupported means that the kernel cannot copy packets to processes.
var ErrUnsupported = errors.New("the kernel does not offer nflog: load the module nfnetlink_log")

const (
	subsystem = 4 // NFNL_SUBSYS_ULOG

	commandPacket = 0
	commandConfig = 1

	configCommand = 1
	configMode    = 2
	configDelay   = 4
	configBatch   = 5
	configFlags   = 6

	bind          = 1
	copyPacket    = 2
	flagSequences = 1

	attrHeader   = 1
	attrMark     = 2
	attrIn       = 4
	attrOut      = 5
	attrPayload  = 9
	attrPrefix   = 10
	attrSequence = 12
)

// Reader reads the copies of one group. Any goroutine may call Stats; only one goroutine may call the other methods.
type Reader struct {
	netlink    *nfnl.Conn
	rate       int
	read, lost atomic.Uint64
	next       uint32 // the sequence number that follows the last copy's
}

// Open begins to receive the copies of a group, in the calling thread's network namespace.
func Open(o Options) (*Reader, error) {
	netlink, err := nfnl.Open()
	if err != nil {
		return nil, fmt.Errorf("read nflog group %d: %w", o.Group, err)
	}
	if o.Buffer > 0 {
		err = netlink.SetReceiveBuffer(o.Buffer)
	}
	if err == nil {
		err = netlink.Do(nfnl.Request{Subsystem: subsystem, Command: commandConfig, Resource: o.Group, Attributes: o.encode()})
	}
	switch {
	case err == nil:
		return &Reader{netlink: netlink, rate: o.Rate}, nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EBUSY):
		err = fmt.Errorf("%w (%w)", ErrBusy, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		err = fmt.Errorf("%w (%w)", ErrUnsupported, err)
	}
	return nil, errors.Join(fmt.Errorf("read nflog group %d: %w", o.Group, err), netlink.Close())
}

func (o Options) encode() []byte {
	var e nfnl.Encoder
	e.Uint8(configCommand, bind)
	e.Raw(configMode, append(binary.BigEndian.AppendUint32(nil, o.CopyRange), copyPacket, 0))
	e.Uint32(configBatch, max(o.Batch, 1))
	if o.Delay > 0 {
		e.Uint32(configDelay, uint32(max(o.Delay/(10*time.Millisecond), 1)))
	}
	e.Uint16(configFlags, flagSequences)
	return e.Bytes()
}

// Close ends Run with an error, and frees the group.
func (r *Reader) Close() error { return r.netlink.Close() }

// Stats returns the counts so far.
func (r *Reader) Stats() Stats { return Stats{Read: r.read.Load(), Lost: r.lost.Load()} }

// Run passes copies to each until the context ends, which is no error.
func (r *Reader) Run(ctx context.Context, each func(Packet)) error {
	budget := pace{rate: r.rate, left: float64(r.rate), last: time.Now()}
	return r.netlink.Listen(ctx, func(m nfnl.Message) {
		if m.Subsystem != subsystem || m.Command != commandPacket {
			return
		}
		p, sequence := packet(m)
		r.lost.Add(uint64(sequence - r.next)) // modulo 2^32, as the kernel counts, from 0
		r.next = sequence + 1
		r.read.Add(1)
		each(p)
		budget.wait(ctx)
	}, func() {}) // the sequence numbers show how many were dropped
}

func packet(m nfnl.Message) (p Packet, sequence uint32) {
	p.Family = m.Family
	for kind, payload := range nfnl.Attributes(m.Attributes) {
		switch kind {
		case attrHeader:
			if len(payload) >= 3 { // protocol of the link layer, hook
				p.Hook = payload[2]
			}
		case attrMark:
			p.Mark = nfnl.Uint32(payload)
		case attrIn:
			p.In = nfnl.Uint32(payload)
		case attrOut:
			p.Out = nfnl.Uint32(payload)
		case attrPayload:
			p.Payload = payload
		case attrPrefix:
			p.Prefix = nfnl.String(payload)
		case attrSequence:
			sequence = nfnl.Uint32(payload)
		}
	}
	return p, sequence
}

// pace is a budget of copies that fills with time, up to a second's worth.
type pace struct {
	rate int
	left float64
	last time.Time
}

// wait spends one copy of the budget, and sleeps when the budget is used up. Meanwhile the kernel drops copies that do not fit its
// buffer.
func (p *pace) wait(ctx context.Context) {
	if p.rate <= 0 {
		return
	}
	if p.left--; p.left >= 0 {
		return
	}
	now := time.Now()
	if p.refill(now); p.left >= 0 {
		return
	}
	timer := time.NewTimer(max(time.Duration(-p.left/float64(p.rate)*float64(time.Second)), 10*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	p.refill(time.Now())
}

func (p *pace) refill(now time.Time) {
	p.left = min(p.left+now.Sub(p.last).Seconds()*float64(p.rate), float64(p.rate))
	p.last = now
}
