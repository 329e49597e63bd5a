package classes

// Sweep lets tests call for what Diff does when there are many lists.
func (c *Classes) Sweep() { c.sweep() }
