package lab

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// doomed is the group of interfaces that are about to be deleted.
const doomed = 0x6d6779

// unplugs deletes interfaces of one host. The kernel takes tens of milliseconds for each deletion, and one at a time; but
// the same time for many at once. So those asked for while one is under way go together.
type unplugs struct {
	mu      sync.Mutex
	busy    bool // a caller works for all
	waiting []removal
}

type removal struct {
	iface string
	done  chan error // of capacity 1
}

// remove deletes the interface, if it is there, and returns when it is gone.
func (u *unplugs) remove(h *Host, iface string) error {
	mine := removal{iface, make(chan error, 1)}
	u.mu.Lock()
	u.waiting = append(u.waiting, mine)
	if u.busy {
		u.mu.Unlock()
		return <-mine.done
	}
	u.busy = true
	for len(u.waiting) > 0 {
		batch := u.waiting
		u.waiting = nil
		u.mu.Unlock()
		removeLinks(h, batch)
		u.mu.Lock()
	}
	u.busy = false
	u.mu.Unlock()
	return <-mine.done
}

// removeLinks tells each of the batch how it went.
func removeLinks(h *Host, batch []removal) {
	var found []removal
	var last netlink.Link
	for _, r := range batch {
		link, err := h.links.handle.LinkByName(r.iface)
		if err == nil && len(batch) > 1 {
			err = h.links.handle.LinkSetGroup(link, doomed)
		}
		if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
			r.done <- nil
			continue
		}
		if err != nil {
			r.done <- err
			continue
		}
		found, last = append(found, r), link
	}
	if len(found) == 0 {
		return
	}
	var err error
	if len(batch) == 1 {
		err = h.links.handle.LinkDel(last)
	} else {
		err = h.Do(removeDoomed)
	}
	for _, r := range found {
		r.done <- err
	}
}

// removeDoomed deletes the group in the namespace of the calling thread.
func removeDoomed() error {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, binary.NativeEndian.AppendUint32(nil, doomed)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
