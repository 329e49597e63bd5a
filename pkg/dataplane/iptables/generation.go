package iptables

import "github.com/margay-project/margay/pkg/compile/chains"

// generation is the number in the mark of each connection that the policy in force has allowed. The whole node has one number. A
// change that may deny traffic allowed before moves it to the next number, and then each live flow is judged again.
type generation struct {
	number, most uint32
	// unreplaced is how often the marks of connections are to be replaced, since the numbers have started again from the first: before the
	// chains have the first number, since each mark may be that of an earlier policy, and after that, since until then chains have written
	// the last number.
	unreplaced int
}

// next moves to the next number.
func (g *generation) next() {
	g.number++
	if g.number > g.most || g.number < chains.FirstGeneration {
		g.number, g.unreplaced = chains.FirstGeneration, 2
	}
}

// replaceMarks makes all connections that have a number ones that are to be judged again.
func (s *static) replaceMarks() error {
	again, err := s.base.Marks.Generation(chains.ToBeJudged)
	if err != nil {
		return err
	}
	if err := s.remark(again.Mask, again.Value); err != nil {
		return err
	}
	s.generation.unreplaced--
	return nil
}

// replaceLate replaces the marks that chains have written with the last number after replaceMarks.
func (s *static) replaceLate() error {
	if s.generation.unreplaced != 1 {
		return nil
	}
	if err := s.world.grace(unseen.ofChains); err != nil {
		return err
	}
	return s.replaceMarks()
}
