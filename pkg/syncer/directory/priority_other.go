//go:build !linux

package directory

// lowerPriority does nothing: elsewhere threads have no priorities of their own, and only tools read directories there.
func lowerPriority() {}
