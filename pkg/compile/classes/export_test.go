package classes

// Sweep finds the lists that are unused now, and drops so many of them. Diff drops the others.
func (c *Classes) Sweep(some int) {
	c.mark()
	c.lists.made = 0
	c.lists.sweep(some)
}

// Nodes is how many prefixes the trees have, joints included.
func (c *Classes) Nodes() (n int) {
	for _, t := range c.trees {
		n += len(t.nodes) - len(t.free)
	}
	return n
}
