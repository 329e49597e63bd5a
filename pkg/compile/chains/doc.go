// Package chains turns compiled tables into chains of iptables: one Slot for a policy of one direction and family, and a
// Dispatch that leads packets to slots, and the Static chains around both. It is pure: it makes texts and runs no command.
//
//   - marks.go: the bits of packet and connection marks; names.go: names of chains and sets
//   - slot.go, slot_change.go: a Slot, which follows the classes of addresses; slot_layout.go: which of them are in its tree;
//     slot_plain.go: the row that most of them have; slot_rows.go: the chains of rows; dispatch.go: the tree of slots
//   - tree.go: a tree of chains over the bits of a number
//   - rows.go, rows_table.go, rows_program.go: the rows of a table as spans of ports
//   - leaf.go, leaf_icmp.go, ports.go: a row as chains, for packets of a flow's opener and for answers
//   - static.go: the chains that do not depend on policy, of parts which own their rules and chains each:
//     static_forward.go and static_host.go the ways into them; static_addresses.go whose address a packet has; static_checks.go the
//     packet alone; static_judgement.go the policies of both ends; static_remotes.go classes; static_strays.go packets judged alone;
//     static_verdicts.go the consequences. static_flows.go and static_terms.go: what all of them match
//   - quote.go, routed.go: programs of the match bpf: which ICMP errors pass, and which packets have source routes
//
// A packet is denied unless a chain marks it as allowed: one that falls off the end of a chain, or meets a flushed chain, is dropped
// by the chain that it returns to.
package chains
