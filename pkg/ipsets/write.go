package ipsets

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Write is Kernel's. Changes travel in messages of up to 16 KiB, some 250 entries.
func (c *Conn) Write(s Spec, changes []Change) (made int, err error) {
	for i := range changes {
		if err := s.check(changes[i].Entry); err != nil {
			return c.write(s, changes[:i], &Error{Op: operation(changes[i]), Set: s.Name, Entry: changes[i].Key.String(), Err: err})
		}
	}
	return c.write(s, changes, nil)
}

// write makes changes that fit the set; then is the error if all of them succeed.
func (c *Conn) write(s Spec, changes []Change, then error) (made int, err error) {
	for made < len(changes) {
		e := request(s.Name)
		n := c.message(e, s.Type, changes[made:])
		command := uint8(commandAdd)
		if changes[made].Remove {
			command = commandDelete
		}
		if err := c.do(command, 0, e); err != nil {
			at := made
			if line, ok := failedLine(err); ok && int(line) < n {
				at += int(line)
			}
			return at, &Error{Op: operation(changes[at]), Set: s.Name, Entry: changes[at].Key.String(), Err: c.crowded(s, explained(err))}
		}
		made += n
	}
	return made, then
}

// crowded distinguishes a full bucket from a full set, for which the kernel has one number.
func (c *Conn) crowded(s Spec, err error) error {
	if s.Type != NetInterface || !errors.Is(err, ErrFull) {
		return err
	}
	if h, other := c.Header(s.Name); other == nil && h.Entries < h.MaxEntries {
		return ErrCrowded
	}
	return err
}

func operation(c Change) string {
	if c.Remove {
		return "delete"
	}
	return "add"
}

// message writes as many changes as one request can hold: of one kind, and not more than messageLen bytes. The kernel reports the
// failing entry only in a request that has a line number.
func (c *Conn) message(e *nfnl.Encoder, t Type, changes []Change) (n int) {
	e.Uint32(attrLine, 0)
	list := e.Nest(attrEntries)
	for n < len(changes) && changes[n].Remove == changes[0].Remove && e.Len() < messageLen {
		split(t, changes[n], func(part Change) { appendEntry(e, part, uint32(n)) })
		n++
	}
	e.End(list)
	return n
}

// failedLine returns the number of the failing entry. The kernel writes it into the copy of the request in its error, in the byte
// order of the request.
func failedLine(err error) (uint32, bool) {
	refused, ok := errors.AsType[*nfnl.Refused](err)
	if !ok {
		return 0, false
	}
	line := nfnl.Find(refused.Request, attrLine)
	if len(line) < 4 {
		return 0, false
	}
	return nfnl.Uint32(line), true
}

// List is Kernel's.
func (c *Conn) List(s Spec, each func(Entry)) error {
	var malformed error
	j := joiner{kind: s.Type, each: each}
	err := c.netlink.Dump(listing(request(s.Name)), func(m nfnl.Message) {
		for kind, data := range nfnl.Attributes(nfnl.Find(m.Attributes, attrEntries)) {
			if kind != attrData {
				continue
			}
			if e, err := entry(data); err != nil {
				malformed = err
			} else {
				j.add(e)
			}
		}
	})
	j.end()
	if err = errors.Join(err, malformed); err != nil {
		return &Error{Op: "list", Set: s.Name, Err: explained(err)}
	}
	return nil
}

// adoptable returns nil if a set in the kernel can serve as the one that is wanted.
func (s Spec) adoptable(h Header) error {
	limit := s.MaxEntries
	if limit == 0 {
		limit = defaultMaxEntries
	}
	switch {
	case h.Type != s.Type || h.Family != s.Family || !h.HasMarks:
		return fmt.Errorf("%w (it is %s of %v, with marks: %t)", ErrType, h.Type, h.Family, h.HasMarks)
	case h.MaxEntries < limit:
		return fmt.Errorf("%w (its limit is %d entries, not %d)", ErrType, h.MaxEntries, limit)
	}
	return nil
}
