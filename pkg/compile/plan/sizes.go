package plan

// Work is what an Update worked out again, whether or not anything came of it. The tables that it made are in its Plan.
type Work struct {
	Endpoints int // that it looked at, shadows included
	Policies  int // of one direction, that it began to expand into rules for addresses and ports
}

// Sizes count the compiler's objects, for metrics, as of the last plan.
type Sizes struct {
	Classes int // of addresses, the two that are in no set included
	Tables  int // compiled policies that endpoints share
	Rules   int // API rules with a number
	Failed  int // endpoint-directions whose policy cannot be compiled
	Work    Work
}

// Sizes counts. It takes time in proportion to the failures alone.
func (c *Compiler) Sizes() Sizes {
	return Sizes{
		Classes: c.classes.Len(),
		Tables:  len(c.programs.all()),
		Rules:   c.rules.Len(),
		Failed:  c.failures.len(),
		Work:    c.pace.work,
	}
}
