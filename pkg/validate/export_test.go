package validate

// For the tests outside of the package, which read by the registry of kinds.
const (
	MaxProblems = maxProblems
	MaxTextLen  = maxTextLen
)
