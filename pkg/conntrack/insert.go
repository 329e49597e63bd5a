package conntrack

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Flow is a connection to be tracked although the kernel has not seen its beginning.
type Flow struct {
	Original Tuple
	Mark     uint32
	Timeout  time.Duration // at least a second
}

// Insert adds connections as established ones, of which packets of both directions were seen. The result is parallel to flows: the
// error of each connection, nil if it was added, ErrExists if it is tracked already and its entry stays as it is. The kernel does
// not check windows of TCP for such an entry. Connections with translated addresses cannot be inserted: the node that translates
// tracks them already.
func (c *Conn) Insert(flows []Flow) []error {
	errs := make([]error, len(flows))
	requests, places := make([]nfnl.Request, 0, len(flows)), make([]int, 0, len(flows))
	for i, f := range flows {
		request, err := f.insertion()
		if err != nil {
			errs[i] = err
			continue
		}
		places = append(places, i)
		requests = append(requests, request)
	}
	for i, err := range c.writes.DoAll(requests) {
		errs[places[i]] = failed("insert", &flows[places[i]].Original, err)
	}
	return errs
}

// insertion returns the request that adds the connection.
func (f *Flow) insertion() (nfnl.Request, error) {
	reply, ok := f.Original.swapped()
	if !ok || !f.Original.Src.IsValid() || f.Original.Src.BitLen() != f.Original.Dst.BitLen() {
		return nfnl.Request{}, failed("insert", &f.Original, errors.New("a packet with these fields opens no connection"))
	}
	var e nfnl.Encoder
	appendTuple(&e, attrOriginal, f.Original)
	appendTuple(&e, attrReply, reply)
	e.Uint32(attrStatus, uint32(SeenReply|Assured|Confirmed))
	e.Uint32(attrTimeout, uint32(max(f.Timeout/time.Second, 1)))
	e.Uint32(attrMark, f.Mark)
	if f.Original.Protocol == unix.IPPROTO_TCP {
		info := e.Nest(attrProtocolInfo)
		tcp := e.Nest(attrInfoTCP)
		e.Uint8(attrTCPState, TCPEstablished)
		e.Raw(attrTCPFlagsOriginal, []byte{pickedUp, pickedUp})
		e.Raw(attrTCPFlagsReply, []byte{pickedUp, pickedUp})
		e.End(tcp)
		e.End(info)
	}
	return write(commandNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, f.Original, &e), nil
}

// Replace removes each entry, and adds the connection at the same place of flows, which is as long. The kernel does one right after the
// other, so that few packets come between. The result is parallel to entries: the error of each, nil if the connection was added.
// ErrExists: a packet came between, and the kernel has made an entry of it again. An entry that no longer exists is no error.
func (c *Conn) Replace(entries []Entry, flows []Flow) []error {
	errs := make([]error, len(entries))
	var requests []nfnl.Request
	var places []int
	for i, entry := range entries {
		request, err := flows[i].insertion()
		if err != nil {
			errs[i] = err
			continue
		}
		places = append(places, i)
		requests = append(requests, deletion(entry), request)
	}
	answers := c.writes.DoAll(requests)
	for n, i := range places {
		gone := failed("delete", &entries[i].Original, answers[2*n])
		if gone != nil && !errors.Is(gone, ErrNoEntry) {
			errs[i] = gone
			continue
		}
		errs[i] = failed("insert", &flows[i].Original, answers[2*n+1])
	}
	return errs
}
