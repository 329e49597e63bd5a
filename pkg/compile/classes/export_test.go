package classes

// Sweep finds the lists that are unused now, and drops so many of them. Diff drops the others.
func (c *Classes) Sweep(some int) {
	c.mark()
	c.lists.made = 0
	c.lists.sweep(some)
}
