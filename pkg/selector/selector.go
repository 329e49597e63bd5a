package selector

// Selector is a parsed selector. Immutable and safe for concurrent use.
type Selector struct{ text string }

// String returns the canonical text.
func (s *Selector) String() string { return s.text }
