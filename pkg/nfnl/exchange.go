package nfnl

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// batch is how many requests are sent at once. Their acknowledgements fit into any receive buffer.
const batch = 64

// Do sends a request and waits for the kernel's acknowledgement.
func (c *Conn) Do(r Request) error { return c.DoAll([]Request{r})[0] }

// DoAll sends requests in batches, and returns the error of each, parallel to requests; nil: it succeeded. The kernel carries them
// out in their order, and goes on after one that failed. After ErrOverrun or a deadline it is not known whether a request was
// carried out.
func (c *Conn) DoAll(requests []Request) []error { return c.doAll(requests, 1) }

// DoMany is DoAll with fewer answers: the kernel acknowledges only the last request of each batch, and answers those that fail.
func (c *Conn) DoMany(requests []Request) []error { return c.doAll(requests, batch) }

// doAll carries out requests, of which every acknowledged-th one in a batch is acknowledged.
func (c *Conn) doAll(requests []Request, acknowledged int) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(requests))
	for at := 0; at < len(requests); at += batch {
		c.doSome(requests[at:min(at+batch, len(requests))], errs[at:], acknowledged)
	}
	return errs
}

// doSome sends a batch. Every acknowledged-th request, and the last one, has to be acknowledged. The kernel answers in the order of the
// requests, so those without an answer before the last one's have succeeded.
func (c *Conn) doSome(requests []Request, errs []error, acknowledged int) {
	first := c.sequence + 1
	var b []byte
	for i, r := range requests {
		c.sequence++
		flags := uint16(0)
		if (i+1)%acknowledged == 0 || i == len(requests)-1 {
			flags = unix.NLM_F_ACK
		}
		b = align(r.encode(b, flags, c.sequence))
	}
	answered, last := make([]bool, len(requests)), len(requests)-1
	failed := c.send(b)
	for failed == nil && !answered[last] {
		failed = c.messages(time.Now().Add(answerLimit), func(h header, body []byte) {
			i := int(h.sequence - first)
			if h.kind != unix.NLMSG_ERROR || i < 0 || i >= len(requests) || answered[i] {
				return
			}
			answered[i], errs[i] = true, refusal(body)
		})
	}
	for i := range requests {
		if !answered[i] {
			errs[i] = failed
		}
	}
}

// Transaction sends requests as one batch of a subsystem that has transactions (nftables), which takes effect whole or not at all. There
// is at least one request, and all have one Subsystem. It returns the first error.
func (c *Conn) Transaction(requests ...Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	edge := Request{Command: unix.NFNL_MSG_BATCH_BEGIN, Resource: uint16(requests[0].Subsystem)}
	first, last := c.sequence+1, c.sequence+uint32(len(requests))+1
	b := edge.encode(nil, 0, first)
	for i, r := range requests {
		b = align(r.encode(b, unix.NLM_F_ACK, first+1+uint32(i)))
	}
	edge.Command = unix.NFNL_MSG_BATCH_END
	c.sequence = last + 1
	if err := c.send(edge.encode(b, 0, c.sequence)); err != nil {
		return err
	}
	var refused error
	for ended := false; !ended; {
		err := c.messages(time.Now().Add(answerLimit), func(h header, body []byte) {
			if h.kind != unix.NLMSG_ERROR || h.sequence-first > last+1-first {
				return
			}
			refused = cmp.Or(refused, refusal(body))
			ended = ended || h.sequence == last || refused != nil // before it begins or ends, the kernel answers only failures
		})
		if err != nil {
			return err
		}
	}
	return refused
}

func align(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// Get sends a request that the kernel answers with one message, and passes that to answer.
func (c *Conn) Get(r Request, answer func(Message)) error {
	return c.collect(r, unix.NLM_F_ACK, answer)
}

// Dump sends a request that the kernel answers with all its entries, one message each, and passes them to each. each must not call
// the Conn. After ErrInterrupted each has got all messages, but they are not a snapshot.
func (c *Conn) Dump(r Request, each func(Message)) error {
	return c.collect(r, unix.NLM_F_DUMP, each)
}

func (c *Conn) collect(r Request, flags uint16, each func(Message)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	if err := c.send(r.encode(nil, flags, c.sequence)); err != nil {
		return err
	}
	var end error
	done, interrupted := false, false
	for !done {
		err := c.messages(time.Now().Add(answerLimit), func(h header, body []byte) {
			switch {
			case h.sequence != c.sequence || done: // late answers to an earlier request
			case h.kind == unix.NLMSG_ERROR || h.kind == unix.NLMSG_DONE:
				done, end = true, refusal(body)
			default:
				interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
				if m, ok := message(h, body); ok {
					each(m)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if end == nil && interrupted {
		return ErrInterrupted
	}
	return end
}

// Listen passes on messages that the kernel sends without a request, until the context ends, which is no error. It calls lost when
// the kernel has dropped messages; their number is unknown. Nothing else may use the Conn meanwhile.
func (c *Conn) Listen(ctx context.Context, each func(Message), lost func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = c.file.SetReadDeadline(time.Unix(1, 0)) }) // fails for a closed file only
	defer stop()
	for ctx.Err() == nil {
		// The deadline bounds the delay if the context ends between its check and the read.
		err := c.messages(time.Now().Add(time.Second), func(h header, body []byte) {
			if m, ok := message(h, body); ok {
				each(m)
			}
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, ErrOverrun):
			lost()
		case err != nil && ctx.Err() == nil:
			return err
		}
	}
	return nil
}

// header is netlink's of one message.
type header struct {
	kind, flags uint16
	sequence    uint32
}

// messages reads one datagram and yields its messages.
func (c *Conn) messages(deadline time.Time, each func(h header, body []byte)) error {
	b, err := c.receive(deadline)
	if err != nil {
		return err
	}
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errors.New("receive from the kernel's netfilter: a malformed message")
		}
		each(header{
			kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]), sequence: binary.NativeEndian.Uint32(b[8:]),
		}, b[unix.SizeofNlMsghdr:size])
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

func message(h header, body []byte) (Message, bool) {
	if h.kind < unix.NLMSG_MIN_TYPE || len(body) < 4 {
		return Message{}, false
	}
	return Message{
		Subsystem: uint8(h.kind >> 8), Command: uint8(h.kind),
		Family: body[0], Resource: binary.BigEndian.Uint16(body[2:]), Attributes: body[4:],
	}, true
}

// refusal is the error in the body of an acknowledgement or of a dump's end; nil: none.
func refusal(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	code := -int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	r := &Refused{Code: int(code)}
	if repeated := body[4:]; len(repeated) > headerLen {
		r.Request = append(r.Request, repeated[headerLen:]...)
	}
	return r
}
