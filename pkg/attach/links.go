package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Programs are what Links attaches. Without Guard and Judge there are no netfilter hooks.
type Programs struct {
	FromPod, ToPod *ebpf.Program // TCX
	Guard, Judge   *ebpf.Program // netfilter; may be nil
}

// Links attaches programs by links pinned in a directory of the BPF file system, so that they stay when the agent ends.
type Links struct {
	netfilterLinks
	programs Programs
	tcx      map[tcxKey]link.Link
	ours     map[tcxKey]bool // ensured before by this process
}

var _ Attacher = (*Links)(nil)

// NewLinks returns an Attacher that pins in dir, which it creates. Links pinned in older directories (of another map
// layout) are moved to dir when they are ensured. The programs stay the caller's and must stay open.
func NewLinks(dir string, older []string, programs Programs) (*Links, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for links: %w", err)
	}
	l := &Links{
		netfilterLinks: netfilterLinks{pins: pins{dir, older}, hooks: map[string]link.Link{}},
		tcx:            map[tcxKey]link.Link{}, ours: map[tcxKey]bool{},
	}
	if err := l.SetPrograms(programs); err != nil {
		return nil, err
	}
	return l, nil
}

// SetPrograms replaces the programs; the next Ensure of each interface and of the hooks puts them in place.
func (l *Links) SetPrograms(programs Programs) error {
	ids := map[*ebpf.Program]ebpf.ProgramID{}
	for _, program := range []*ebpf.Program{programs.FromPod, programs.ToPod, programs.Guard, programs.Judge} {
		if program == nil {
			continue
		}
		info, err := program.Info()
		if err != nil {
			return fmt.Errorf("program to attach: %w", err)
		}
		id, ok := info.ID()
		if !ok {
			return errors.New("program to attach: the kernel does not report its id")
		}
		ids[program] = id
	}
	l.programs, l.ids, l.judge, l.guard = programs, ids, programs.Judge, programs.Guard
	return nil
}

// Close closes the links; pinned links stay attached.
func (l *Links) Close() error {
	var errs []error
	for _, opened := range l.tcx {
		errs = append(errs, opened.Close())
	}
	for _, opened := range l.hooks {
		errs = append(errs, opened.Close())
	}
	clear(l.tcx)
	clear(l.hooks)
	return errors.Join(errs...)
}
