package ipsets

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// dumpAttempts bounds how often a list is read again because the kernel's table changed meanwhile.
const dumpAttempts = 5

// Conn is the kernel's IP sets of one network namespace. It is safe for concurrent use.
type Conn struct{ netlink *nfnl.Conn }

// Open connects to the IP sets of the calling thread's network namespace, and checks that the kernel speaks a version of the
// protocol that this package knows.
func Open() (*Conn, error) {
	netlink, err := nfnl.Open()
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	c := &Conn{netlink}
	if err := c.probe(); err != nil {
		return nil, errors.Join(&Error{Op: "ask for the protocol's version", Err: err}, netlink.Close())
	}
	return c, nil
}

// Close releases the socket. Sets stay.
func (c *Conn) Close() error { return c.netlink.Close() }

// probe asks for the versions of the protocol that the kernel speaks.
func (c *Conn) probe() error {
	newest, oldest := uint8(0), uint8(0)
	err := c.get(commandProtocol, request(""), func(m nfnl.Message) {
		newest = nfnl.Uint8(nfnl.Find(m.Attributes, attrProtocol))
		if oldest = nfnl.Uint8(nfnl.Find(m.Attributes, attrProtocolMin)); oldest == 0 {
			oldest = newest
		}
	})
	switch refused, ok := errors.AsType[*nfnl.Refused](err); {
	case ok && refused.Code == int(unix.EINVAL): // nfnetlink knows no such subsystem, and no module could be loaded
		return fmt.Errorf("%w (the kernel knows nothing of ipset)", ErrUnsupported)
	case err != nil:
		return explained(err)
	case protocolOldest < oldest || protocolOldest > newest:
		return fmt.Errorf("%w: the kernel speaks versions %d to %d of the protocol, Margay version %d", ErrUnsupported, oldest, newest, protocolOldest)
	}
	return nil
}

// Supports returns nil if the kernel has sets of the type and family with marks, and ErrUnsupported if it has not; any other error
// means that the query failed. The query makes the kernel load the module.
func (c *Conn) Supports(t Type, f Family) error {
	e := request("")
	e.String(attrTypeName, string(t))
	e.Uint8(attrFamily, uint8(f))
	var newest, oldest uint8
	err := c.get(commandType, e, func(m nfnl.Message) {
		newest = nfnl.Uint8(nfnl.Find(m.Attributes, attrRevision))
		oldest = nfnl.Uint8(nfnl.Find(m.Attributes, attrProtocolMin))
	})
	if err == nil && (t.revision() < oldest || t.revision() > newest) {
		err = fmt.Errorf("%w: the kernel has revisions %d to %d, revision %d is needed", ErrUnsupported, oldest, newest, t.revision())
	}
	if err != nil {
		return &Error{Op: fmt.Sprintf("ask for sets %s of %v", t, f), Err: explained(err)}
	}
	return nil
}

// Create is Kernel's.
func (c *Conn) Create(s Spec) error {
	if len(s.Name) == 0 || len(s.Name) > maxNameLen {
		return &Error{Op: "create", Set: s.Name, Err: fmt.Errorf("the name of a set has 1 to %d bytes", maxNameLen)}
	}
	e := request(s.Name)
	e.String(attrTypeName, string(s.Type))
	e.Uint8(attrRevision, s.Type.revision())
	e.Uint8(attrFamily, uint8(s.Family))
	data := e.Nest(attrData)
	if s.HashSize != 0 {
		e.Uint32(attrHashSize, s.HashSize)
	}
	if s.MaxEntries != 0 {
		e.Uint32(attrMaxEntries, s.MaxEntries)
	}
	e.Uint32(attrCADTFlags, flagWithSkbinfo)
	e.End(data)
	err := c.do(commandCreate, unix.NLM_F_CREATE|unix.NLM_F_EXCL, e)
	if err != nil {
		return &Error{Op: "create", Set: s.Name, Err: explained(err)}
	}
	return nil
}

// Destroy is Kernel's.
func (c *Conn) Destroy(name string) error {
	if name == "" {
		return &Error{Op: "destroy", Err: errors.New("no name, which the kernel takes for all sets")}
	}
	// Without NLM_F_EXCL, newer kernels accept that there is no such set.
	if err := c.do(commandDestroy, unix.NLM_F_EXCL, request(name)); err != nil {
		return &Error{Op: "destroy", Set: name, Err: explained(err)}
	}
	return nil
}

// Swap is Kernel's.
func (c *Conn) Swap(name, with string) error {
	e := request(name)
	e.String(attrTypeName, with) // the kernel has one number for both
	if err := c.do(commandSwap, 0, e); err != nil {
		return &Error{Op: "swap with " + with, Set: name, Err: explained(err)}
	}
	return nil
}

// Names is Kernel's.
func (c *Conn) Names(prefix string) ([]string, error) {
	e := request("")
	e.Uint32(attrFlags, listNames)
	var names []string
	err := c.dump(e, func() { names = nil }, func(m nfnl.Message) {
		if name := nfnl.String(nfnl.Find(m.Attributes, attrSetName)); name != "" && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	})
	if err != nil {
		return nil, &Error{Op: "list the names of sets", Err: explained(err)}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Header is Kernel's.
func (c *Conn) Header(name string) (Header, error) {
	e := request(name)
	e.Uint32(attrFlags, listHeader)
	var h Header
	err := c.dump(e, func() { h = Header{} }, func(m nfnl.Message) {
		if nfnl.Find(m.Attributes, attrData) != nil {
			h = header(m.Attributes)
		}
	})
	if err != nil {
		return h, &Error{Op: "read the header", Set: name, Err: explained(err)}
	}
	return h, nil
}

func header(b []byte) Header {
	data := nfnl.Find(b, attrData)
	return Header{
		Spec: Spec{
			Name: nfnl.String(nfnl.Find(b, attrSetName)), Type: Type(nfnl.String(nfnl.Find(b, attrTypeName))),
			Family:     Family(nfnl.Uint8(nfnl.Find(b, attrFamily))),
			MaxEntries: nfnl.Uint32(nfnl.Find(data, attrMaxEntries)), HashSize: nfnl.Uint32(nfnl.Find(data, attrHashSize)),
		},
		Revision: nfnl.Uint8(nfnl.Find(b, attrRevision)),
		HasMarks: nfnl.Uint32(nfnl.Find(data, attrCADTFlags))&flagWithSkbinfo != 0,
		Entries:  nfnl.Uint32(nfnl.Find(data, attrElements)), Memory: nfnl.Uint32(nfnl.Find(data, attrMemory)),
		References: nfnl.Uint32(nfnl.Find(data, attrReferences)),
	}
}

func (c *Conn) get(command uint8, e *nfnl.Encoder, answer func(nfnl.Message)) error {
	return c.netlink.Get(nfnl.Request{Subsystem: subsystem, Command: command, Family: unix.AF_INET, Attributes: e.Bytes()}, answer)
}

func listing(e *nfnl.Encoder) nfnl.Request {
	return nfnl.Request{Subsystem: subsystem, Command: commandList, Family: unix.AF_INET, Attributes: e.Bytes()}
}

// do sends a request, and repeats it if its answer was lost. All requests but creation are idempotent; if the lost creation
// succeeded, the repeated one fails with ErrExists.
func (c *Conn) do(command uint8, flags uint16, e *nfnl.Encoder) error {
	r := nfnl.Request{Subsystem: subsystem, Command: command, Family: unix.AF_INET, Flags: flags, Attributes: e.Bytes()}
	err := c.netlink.Do(r)
	if errors.Is(err, nfnl.ErrOverrun) || errors.Is(err, unix.EAGAIN) {
		err = c.netlink.Do(r)
	}
	return err
}

// dump reads again from the start, after reset, if the kernel's table changed meanwhile.
func (c *Conn) dump(e *nfnl.Encoder, reset func(), each func(nfnl.Message)) error {
	var err error
	for range dumpAttempts {
		reset()
		err = c.netlink.Dump(listing(e), each)
		if !errors.Is(err, nfnl.ErrInterrupted) && !errors.Is(err, nfnl.ErrOverrun) {
			return err
		}
	}
	return err
}
