package iptables

// generation is the number that a connection's mark has if the policy in force has allowed it. One number serves the whole
// node: a change that denies something which was allowed before makes it another one, and each live flow is judged once more.
type generation struct {
	number, most uint32
}

// The first numbers mean something else: 0 is no judgement yet, and 1 that a connection is to be judged again.
const (
	neverJudged  = 0
	toBeJudged   = 1
	firstInForce = 2
)

// next makes the number another one. wrapped: numbers begin again from the first one, so connections may have any of them.
func (g *generation) next() (wrapped bool) {
	g.number++
	if g.number > g.most || g.number < firstInForce {
		g.number = firstInForce
		return true
	}
	return false
}
