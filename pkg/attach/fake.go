package attach

import (
	"fmt"
	"slices"
)

// Fake attaches to nothing: for tests without a kernel. Interfaces come and go as the test says.
type Fake struct {
	Interfaces map[uint32]bool  // those that exist
	Attached   map[uint32]bool  // those with our programs; delete one to play somebody who detaches it
	Hooks      bool             // whether judge is attached
	Early      bool             // whether guard is
	Fail       map[uint32]error // what Ensure of an interface answers instead of doing it; 0: EnsureHooks
	Calls      []string         // the calls in order, with the interface's number

	seen map[uint32]bool
}

var _ Attacher = (*Fake)(nil)

// NewFake returns a Fake on which nothing is attached.
func NewFake(interfaces ...uint32) *Fake {
	f := &Fake{Interfaces: map[uint32]bool{}, Attached: map[uint32]bool{}, Fail: map[uint32]error{}, seen: map[uint32]bool{}}
	for _, ifindex := range interfaces {
		f.Interfaces[ifindex] = true
	}
	return f
}

// Ensure implements Attacher.
func (f *Fake) Ensure(ifindex uint32) (Change, error) {
	f.Calls = append(f.Calls, fmt.Sprintf("ensure %d", ifindex))
	if err := f.Fail[ifindex]; err != nil {
		return Unchanged, err
	}
	if !f.Interfaces[ifindex] {
		return Unchanged, fmt.Errorf("attach to interface %d: %w", ifindex, ErrGone)
	}
	change := Attached
	switch {
	case f.Attached[ifindex]:
		change = Unchanged
	case f.seen[ifindex]:
		change = Repaired
	}
	f.Attached[ifindex], f.seen[ifindex] = true, true
	return change, nil
}

// Detach implements Attacher.
func (f *Fake) Detach(ifindex uint32) error {
	f.Calls = append(f.Calls, fmt.Sprintf("detach %d", ifindex))
	delete(f.Attached, ifindex)
	delete(f.seen, ifindex)
	return nil
}

// EnsureHooks implements Attacher.
func (f *Fake) EnsureHooks() (Change, error) {
	f.Calls = append(f.Calls, "ensure hooks")
	if err := f.Fail[0]; err != nil {
		return Unchanged, err
	}
	if f.Hooks {
		return Unchanged, nil
	}
	f.Hooks = true
	return Attached, nil
}

// EnsureEarly implements Attacher.
func (f *Fake) EnsureEarly() (Change, error) {
	f.Calls = append(f.Calls, "ensure early")
	if f.Early {
		return Unchanged, nil
	}
	f.Early = true
	return Attached, nil
}

// SuspendEarly implements Attacher.
func (f *Fake) SuspendEarly() error {
	f.Calls = append(f.Calls, "suspend early")
	f.Early = false
	return nil
}

// ResumeEarly implements Attacher: no earlier process has suspended any.
func (f *Fake) ResumeEarly() error { return nil }

// DetachHooks implements Attacher.
func (f *Fake) DetachHooks() error {
	f.Calls = append(f.Calls, "detach hooks")
	f.Hooks, f.Early = false, false
	return nil
}

// List implements Attacher.
func (f *Fake) List() ([]Attachment, error) {
	var list []Attachment
	for ifindex := range f.seen {
		state := LinkState{Pinned: true, Attached: f.Attached[ifindex]}
		list = append(list, Attachment{Ifindex: ifindex, Ingress: state, Egress: state})
	}
	slices.SortFunc(list, func(a, b Attachment) int { return int(int64(a.Ifindex) - int64(b.Ifindex)) })
	return list, nil
}

// RemoveStale implements Attacher.
func (f *Fake) RemoveStale() ([]uint32, error) {
	var gone []uint32
	for ifindex := range f.seen {
		if !f.Interfaces[ifindex] {
			gone = append(gone, ifindex)
			delete(f.seen, ifindex)
		}
	}
	slices.Sort(gone)
	return gone, nil
}

// Close implements Attacher.
func (f *Fake) Close() error { return nil }
