// Package selector is the Calico selector language: parse, evaluate, print, rewrite (semantics §9). It uses the
// standard library only, does no I/O, and everything it returns is immutable and safe for concurrent use.
//
//	expr  = and { "||" and }
//	and   = unary { "&&" unary }
//	unary = "!" unary | "(" expr ")" | pred
//	pred  = "all()" | "global()" | "has(" label ")"
//	      | label ( "==" | "!=" | "contains" | "starts with" | "ends with" ) value
//	      | label ( "in" | "not in" | "notin" ) "{" [ value { "," value } [ "," ] ] "}"
//	label = [A-Za-z0-9_./-]+           value = "'" text without ' "'" | '"' text without " '"'
//
// Spaces and tabs may stand between any two tokens; "has(", "all(" and "global(" are one token each. Values have no
// escape sequences. An empty expression is all(). global() must be the whole expression.
package selector
