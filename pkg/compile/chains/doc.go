// Package chains turns compiled tables into chains of iptables: one Slot for a policy of one direction and family, and a
// Dispatch that leads packets to slots, and the Static chains around both. It makes texts and runs nothing.
//
//   - marks.go: which bits of packet and connection marks say what; names.go: names of chains and sets
//   - slot.go: a Slot, which follows the classes of addresses; slot_plain.go: the row that most of them have; dispatch.go: the tree of slots
//   - tree.go: numbers in a mark to where they lead
//   - rows.go, rows_table.go, rows_program.go: what the rows of a table say, as spans of ports
//   - leaf.go, leaf_icmp.go, ports.go: a row as chains, for packets of a flow's opener and for answers
//   - static.go and below: chains that do not depend on policy; quote.go: which ICMP errors pass
//
// A packet is denied unless a chain says that it is allowed: what falls off the end of a chain, or meets one that was flushed,
// is dropped by the chain that it comes back to.
package chains
