// Package compile holds no code; the packages below it turn the policy of local endpoints into what the BPF programs
// consult: an ordered match table for each endpoint-direction, equivalence classes of addresses, and decision tables in
// which the verdict of any packet is one cell (docs/datapath.md). All of them are pure: no I/O, no concurrency, no clock;
// equal input gives equal output.
//
//   - classes: sets and their members -> classes and the class of every address
//   - match: model.DirectionPolicy -> match.Program, the ordered match table
//   - table: match.Program and classes -> table.Table, the decision table; what the programs do with it, in Go
//   - plan: model.Changes -> plan.Plan, the kernel writes in their order, by means of the three
//   - chains: table.Table -> chains of iptables that decide the same
//   - ids: the small numbers by which the kernel knows classes, sets and rules
package compile
