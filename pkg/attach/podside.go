package attach

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PodSide is the pod's end of a veth, in the pod's network namespace.
type PodSide struct {
	Ifindex uint32
	MAC     [6]byte
	MTU     uint16
}

// FindPodSide looks up the pod's end of the veth whose host end is ifindex. ok is false if it cannot be known: not a
// veth, both ends in one namespace, or the pod's namespace out of reach. ErrGone: there is no such interface. It asks
// the kernel by the namespace's id as seen from the calling thread's and enters no namespace.
func FindPodSide(ifindex uint32) (pod PodSide, ok bool, err error) {
	host, err := netlink.LinkByIndex(int(ifindex))
	if errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV) {
		return PodSide{}, false, fmt.Errorf("interface %d: %w", ifindex, ErrGone)
	}
	if err != nil {
		return PodSide{}, false, fmt.Errorf("interface %d: %w", ifindex, err)
	}
	a := host.Attrs()
	if host.Type() != "veth" || a.ParentIndex <= 0 || a.NetNsID < 0 {
		return PodSide{}, false, nil
	}
	peer, err := linkIn(a.NetNsID, a.ParentIndex)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return PodSide{}, false, nil
	}
	if err != nil {
		return PodSide{}, false, fmt.Errorf("pod side of interface %d: %w", ifindex, err)
	}
	p := peer.Attrs()
	if len(p.HardwareAddr) != len(pod.MAC) || p.MTU <= 0 || p.MTU > 0xffff {
		return PodSide{}, false, nil
	}
	return PodSide{uint32(p.Index), [6]byte(p.HardwareAddr), uint16(p.MTU)}, true, nil
}

// linkIn asks for an interface of the namespace that has this id in ours.
func linkIn(nsid, ifindex int) (netlink.Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(ifindex)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(nsid))))
	answers, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("%d answers", len(answers))
	}
	return netlink.LinkDeserialize(nil, answers[0])
}
