package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// List implements Attacher.
func (l *Links) List() ([]Attachment, error) { return ListPinned(l.pins.dir) }

// ListPinned says what the links pinned in dir are attached to, by ifindex, without an Attacher.
func ListPinned(dir string) ([]Attachment, error) {
	names, err := pinNames(dir)
	errs := []error{err}
	at := map[uint32]*Attachment{}
	for _, name := range names {
		key, ok := parsePin(name)
		if !ok {
			continue
		}
		state, err := linkState(filepath.Join(dir, name), key)
		if errors.Is(err, os.ErrNotExist) {
			continue // its interface has just gone
		}
		if errs = append(errs, err); err != nil {
			continue
		}
		if at[key.ifindex] == nil {
			at[key.ifindex] = &Attachment{Ifindex: key.ifindex}
		}
		if key.side == ingress {
			at[key.ifindex].Ingress = state
		} else {
			at[key.ifindex].Egress = state
		}
	}
	list := make([]Attachment, 0, len(at))
	for _, a := range at {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Attachment) int { return int(int64(a.Ifindex) - int64(b.Ifindex)) })
	return list, errors.Join(errs...)
}

// Judging returns the interfaces that programs are attached to by links pinned in dir; nil: none is pinned at a netfilter hook, so the agent
// has not attached all.
func Judging(dir string) (map[uint32]bool, error) {
	if hooked, err := Hooked(dir); !hooked || err != nil {
		return nil, err
	}
	list, err := ListPinned(dir)
	if err != nil {
		return nil, err
	}
	there := map[uint32]bool{}
	for _, a := range list {
		if a.Ingress.Attached || a.Egress.Attached {
			there[a.Ifindex] = true
		}
	}
	return there, nil
}

// Outside returns the interfaces, with their names, that do not begin with prefix, and that programs are attached to by links pinned in dirs.
func Outside(prefix string, dirs ...string) (map[uint32]string, error) {
	var attached []Attachment
	for _, dir := range dirs {
		list, err := ListPinned(dir)
		if err != nil {
			return nil, err
		}
		attached = append(attached, list...)
	}
	if len(attached) == 0 {
		return nil, nil
	}
	all, err := Interfaces(WatchOptions{}, "")
	if err != nil {
		return nil, err
	}
	outside := map[uint32]string{}
	for _, i := range all {
		here := slices.ContainsFunc(attached, func(a Attachment) bool { return a.Ifindex == i.Ifindex && (a.Ingress.Here || a.Egress.Here) })
		if here && !strings.HasPrefix(i.Name, prefix) {
			outside[i.Ifindex] = i.Name
		}
	}
	return outside, nil
}

func linkState(path string, key tcxKey) (LinkState, error) {
	opened, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return LinkState{}, fmt.Errorf("open link %s: %w", path, err)
	}
	defer opened.Close()
	info, err := opened.Info()
	if err != nil {
		return LinkState{}, fmt.Errorf("link %s: %w", path, err)
	}
	s := LinkState{Pinned: true, Link: uint32(info.ID), Program: uint32(info.Program)}
	if tcx := info.TCX(); tcx == nil || tcx.Ifindex != key.ifindex {
		return s, nil
	}
	s.Attached = true
	there, err := around(info.ID, key)
	s.Here, s.Overtakes, s.Overtaking, s.Before, s.After = there.here, there.links, there.programs, len(there.links), there.after
	return s, err
}

// neighbours are the programs of others at the place of a link.
type neighbours struct {
	here            bool     // false: no program of the link is attached there, and nothing is known of others
	links, programs []uint32 // of those that run before the link's; of the links, 0 is for a program without one
	after           int      // the number of those that run after it
}

// around returns the neighbours of a link.
func around(id link.ID, key tcxKey) (n neighbours, err error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: int(key.ifindex), Attach: key.attachType()})
	if errors.Is(err, unix.ENODEV) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("programs on interface %d %s: %w", key.ifindex, key.side, err)
	}
	for _, program := range all.Programs {
		switch of, _ := program.LinkID(); {
		case of == id:
			n.here = true
		case n.here:
			n.after++
		default:
			n.links, n.programs = append(n.links, uint32(of)), append(n.programs, uint32(program.ID))
		}
	}
	if !n.here {
		return neighbours{}, nil
	}
	return n, nil
}

// Before returns the links of the programs of others that run before from_pod and before to_pod at an interface (0: one without). They can keep
// packets from ours, or pass them on unseen.
func (l *Links) Before(ifindex uint32) (fromPod, toPod []uint32, err error) {
	var n [2][]uint32
	for i, s := range []side{ingress, egress} {
		key := tcxKey{ifindex, s}
		opened := l.tcx[key]
		if opened == nil {
			continue
		}
		info, err := opened.Info()
		if err != nil {
			return nil, nil, fmt.Errorf("link %s: %w", key.pin(), err)
		}
		there, err := around(info.ID, key)
		if err != nil {
			return nil, nil, err
		}
		n[i] = there.links
	}
	return n[0], n[1], nil
}
