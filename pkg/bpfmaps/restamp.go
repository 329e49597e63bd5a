package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/bpf"
)

// restampPrograms are the programs that replace stamps of flows.
var restampPrograms = [2]walkProgram{
	{bpf.MargayProgRestamp4, bpf.MargayMapCt4, bpf.MargayMapWalk4},
	{bpf.MargayProgRestamp6, bpf.MargayMapCt6, bpf.MargayMapWalk6},
}

// mostWalks bounds how often Restamp walks over the flow tables. A walk misses a flow that gets to a bucket which it has read.
const mostWalks = 10

// Restamp replaces all stamps of flows that are not in force. When it returns without an error, no flow has a stamp that is not in
// use. Policies must not change meanwhile, and no packet may be in a program that has read an earlier one. inUse has the generations in
// force, and the ids of endpoints: stamps that are not in force become the id of the endpoint that put them there, or bpf.StampOfAnother.
//
// It takes about 1 s for a million flows. No packet waits for it.
func (f *Flows) Restamp(p *Programs, inUse map[uint32]bool) (err error) {
	w, err := f.newWalks(restampPrograms, p.Get)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	left := 0
	for range mostWalks {
		for done := false; !done; {
			if done, err = w.Slice(); err != nil {
				return err
			}
		}
		if left, err = f.othersThan(inUse); err != nil || left == 0 {
			return err
		}
	}
	return fmt.Errorf("replace stamps of flows: %d are neither in force nor replaced after %d walks over the flow tables", left, mostWalks)
}

// othersThan is the number of stamps that are not in use. The clock of a revoked flow's reset is none, and packets write it at any time.
func (f *Flows) othersThan(inUse map[uint32]bool) (n int, err error) {
	for flow, err := range f.All() {
		if err != nil {
			return n, err
		}
		for _, stamp := range [2]uint32{flow.Entry.Ingress, flow.Entry.Egress} {
			if stamp > bpf.StampOfAnother && stamp <= lastGeneration && !inUse[stamp] {
				n++
			}
		}
	}
	return n, nil
}
