package bpf

import (
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// renewal has generations begin again from the first one when half of them are used up, and gives those in force new numbers. No flow
// may then have a number from before that is handed out again: it would pass by a policy that has not judged it (ADR 0027).
type renewal struct {
	kernel *kernel
	roster *roster
	retry  *plans.Backoff
}

// quiescer is the part of slots that knows what packets are in programs.
type quiescer interface{ Quiesce() <-chan error }

// run does it if it is due. It runs between two plans and changes no policy. A failure is logged, and tried again by a later Apply: plans
// go on with the numbers that are left.
func (r *renewal) run(p *bpfmaps.Programs, packets quiescer) {
	gens := r.kernel.gens
	if !gens.Exhausted() || !r.retry.Due() {
		return
	}
	began := time.Now()
	if err := r.steps(p, packets); err != nil {
		r.retry.Failed()
		used, most := gens.Use()
		r.kernel.log.Warn("policy generations cannot begin again from the first one, it is tried again; without any left, no policy of this node would change",
			"used", used, "of", most, "err", err)
		return
	}
	r.retry.Reset()
	r.kernel.log.Info("policy generations began again from the first one: each live flow is judged again once", "took", time.Since(began))
}

func (r *renewal) steps(p *bpfmaps.Programs, packets quiescer) error {
	// Flows lose all stamps but those in force.
	if err := r.restamp(p, packets); err != nil {
		return err
	}
	// The numbers begin again. Those in force are left out.
	if err := r.kernel.gens.BeginAgain(r.inUse()); err != nil {
		return err
	}
	if err := r.renumber(); err != nil {
		return err
	}
	// Those in force so far are stamps like others by now. Flows lose them, too.
	if err := r.restamp(p, packets); err != nil {
		return err
	}
	return r.kernel.gens.BegunAgain()
}

// restamp replaces the stamps of flows that are not in force. A packet that is in a program may still put one there that was in force
// when it came. So it waits for packets first.
func (r *renewal) restamp(p *bpfmaps.Programs, packets quiescer) error {
	if err := <-packets.Quiesce(); err != nil {
		return err
	}
	return r.kernel.maps.Flows.Restamp(p, r.inUse())
}

// inUse are the numbers that endpoints have in the kernel, or are to have there.
func (r *renewal) inUse() map[uint32]bool {
	list := map[uint32]bool{}
	for _, e := range r.kernel.endpoints.List() {
		for _, word := range [2]uint64{e.Ingress, e.Egress} {
			_, gen := bpfmaps.SplitPolicyWord(word)
			list[gen] = true
		}
		list[e.Id] = true
	}
	for _, ep := range r.roster.bound {
		list[ep.gens[0]], list[ep.gens[1]], list[ep.number] = true, true, true
	}
	return list
}

// renumber gives every endpoint a new id and new generations, greater than that, of the same policies.
func (r *renewal) renumber() error {
	records := map[uint32]*endpoint{}
	for _, ep := range r.roster.bound {
		if ep.ifindex != 0 {
			records[ep.ifindex] = ep
		} else if err := r.renew(ep, &bpf.Endpoint{}, &bpf.Endpoint{}); err != nil {
			return err
		}
	}
	for _, e := range r.kernel.endpoints.List() {
		was := e
		if err := r.number(&e); err != nil {
			return err
		}
		if err := r.kernel.endpoints.Set(e); err != nil {
			return err
		}
		if err := r.renew(records[e.Ifindex], &was, &e); err != nil {
			return err
		}
	}
	return nil
}

// number gives an entry new numbers.
func (r *renewal) number(e *bpf.Endpoint) (err error) {
	if e.Id, err = r.kernel.gens.Next(); err != nil {
		return err
	}
	for _, word := range [2]*uint64{&e.Ingress, &e.Egress} {
		slot, gen := bpfmaps.SplitPolicyWord(*word)
		if gen == 0 {
			continue // none is in force
		}
		if gen, err = r.kernel.gens.Next(); err != nil {
			return err
		}
		*word = bpfmaps.PolicyWord(slot, gen)
	}
	return nil
}

// renew gives the record of an endpoint, if there is one, the numbers that its entry in the kernel has got. A generation that is not in
// force yet gets a number of its own: its policy is another one.
func (r *renewal) renew(ep *endpoint, was, now *bpf.Endpoint) (err error) {
	if ep == nil {
		return nil
	}
	if ep.number != was.Id {
		was = &bpf.Endpoint{} // its generations are to be greater than its own number
	}
	if ep.number, err = r.renewed(ep.number, was.Id, now.Id); err != nil {
		return err
	}
	before, after := [2]uint64{was.Ingress, was.Egress}, [2]uint64{now.Ingress, now.Egress}
	for dir := range ep.gens {
		_, old := bpfmaps.SplitPolicyWord(before[dir])
		_, given := bpfmaps.SplitPolicyWord(after[dir])
		if ep.gens[dir], err = r.renewed(ep.gens[dir], old, given); err != nil {
			return err
		}
	}
	return nil
}

// renewed is the number that replaces n: that of the kernel's entry if it had n, or one of its own. An endpoint without a number stays so.
func (r *renewal) renewed(n, was, now uint32) (uint32, error) {
	switch n {
	case 0:
		return 0, nil
	case was:
		return now, nil
	}
	return r.kernel.gens.Next()
}
