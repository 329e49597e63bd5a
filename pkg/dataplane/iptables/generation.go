package iptables

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
)

// generation is the number in the mark of each connection that the policy in force has allowed. The whole node has one number. A
// change that may deny traffic allowed before moves it to the next number, and then each live flow is judged again.
//
// The numbers are in two halves. While those of one half are used one after the other, the marks that have a number of the other half are
// replaced, beside all other work. So no connection has a number that is used again, and no change waits while a large table is read:
// a tenant can use up the numbers of a half in some minutes, with changes of its own policy.
type generation struct {
	number, most uint32
	// former: connections may have marks with numbers of the half that is not in use.
	former    bool
	replacing chan error // delivers how the replacement of those ends; nil: none is under way
	// failed is why a replacement has failed that is repeated. Apply returns it until one has succeeded.
	failed error
	since  uint64 // transactions before the present number, as the world counts them
}

// isUpper reports which half a number is in.
func (g *generation) isUpper(number uint32) bool { return number > g.most/2 }

// filter chooses connections of one half, and those without a number if it is the lower one: the highest bit of the number tells them apart.
func (g *generation) filter(marks chains.Marks, upper bool) (conntrack.Filter, error) {
	last, err := marks.Generation(g.most)
	if err != nil {
		return conntrack.Filter{}, err
	}
	below, err := marks.Generation(g.most / 2)
	if err != nil {
		return conntrack.Filter{}, err
	}
	f := conntrack.Filter{Mask: last.Value ^ below.Value}
	if upper {
		f.Mark = f.Mask
	}
	return f, nil
}

// following returns the next number, and whether it is the first one of the other half.
func (g *generation) following() (number uint32, crosses bool) {
	number = g.number + 1
	if number > g.most || number < chains.FirstGeneration {
		number = chains.FirstGeneration
	}
	return number, g.number != 0 && g.isUpper(number) != g.isUpper(g.number)
}

// ended notes how the replacement under way has ended.
func (g *generation) ended(err error) error {
	g.replacing, g.former = nil, err != nil
	if err == nil {
		g.failed = nil
	}
	return err
}

// wait waits for the replacement under way. One that has failed is begun again later.
func (g *generation) wait() {
	if g.replacing != nil {
		_ = g.ended(<-g.replacing)
	}
}

// nextGeneration moves to the next number. Before it uses the other half no connection has a number of that any more. A number that no chain
// has been written with can be used for a further change, so attempts that fail while somebody else has the lock do not use up a half.
func (s *static) nextGeneration() error {
	g := &s.generation
	if g.since == s.world.written {
		return nil
	}
	next, crosses := g.following()
	if crosses {
		if g.wait(); g.former {
			if err := s.replacement(g.isUpper(next))(); err != nil {
				return err
			}
		}
		g.former, g.failed = true, nil // of the half that is left now
	}
	g.number, g.since = next, s.world.written
	return nil
}

// replaceFormer begins to replace the marks with numbers of the half that is not in use, once no packet can get one any more, or says how
// that has ended. It waits also where each transaction has waited for packets in the former chains: the connection of a packet that has left
// these may not be in the kernel's table yet.
func (s *static) replaceFormer() error {
	g := &s.generation
	if !g.former {
		return nil
	}
	if g.replacing != nil {
		select {
		case err := <-g.replacing:
			g.failed = g.ended(err)
		default:
		}
		return g.failed
	}
	if err := s.world.grace(unseen.always); err != nil {
		return err
	}
	replace, ends := s.replacement(!g.isUpper(g.number)), make(chan error, 1)
	g.replacing = ends
	go func() { ends <- replace() }()
	return g.failed
}

// replacement returns what makes all connections with a number of one half ones that are to be judged again. It uses nothing that changes.
func (s *static) replacement(upper bool) func() error {
	flows, marks, halves := s.flows, s.base.Marks, generation{most: s.generation.most}
	return func() error {
		again, err := marks.Generation(chains.ToBeJudged)
		if err != nil {
			return err
		}
		half, err := halves.filter(marks, upper)
		if err != nil {
			return err
		}
		chosen := func(e conntrack.Entry) (uint32, bool) {
			number, _, _ := marks.GenerationOf(e.Mark)
			return again.Value, number >= chains.FirstGeneration && halves.isUpper(number) == upper
		}
		var errs []error
		for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
			_, err := flows.Remark(family, half, again.Mask, chosen)
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("replace marks of connections that have numbers of former policies: %w", err)
		}
		return nil
	}
}
