package iptables

// generation is the number in the mark of each connection that the policy in force has allowed. The whole node has one number. A
// change that may deny traffic allowed before moves it to the next number, and then each live flow is judged again.
type generation struct {
	number, most uint32
}

// Generations begin at firstInForce. neverJudged marks connections without a judgement, toBeJudged those to be judged again.
const (
	neverJudged  = 0
	toBeJudged   = 1
	firstInForce = 2
)

// next moves to the next number. wrapped: the numbers start again from the first, so marks of connections may have any of them.
func (g *generation) next() (wrapped bool) {
	g.number++
	if g.number > g.most || g.number < firstInForce {
		g.number = firstInForce
		return true
	}
	return false
}
