package compile

// Table is one compiled policy.
type Table struct{ ID TableID }
