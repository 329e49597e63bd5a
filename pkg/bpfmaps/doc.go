// Package bpfmaps holds everything the agent keeps in BPF maps: typed tables that record intent and write the
// difference, the slots compiled policies are published in, the endpoints whose stores publish them, and readers of the
// programs' counters and flows. All maps are pinned, so enforcement outlives the agent.
//
//   - maps.go, dir.go, programs.go: the pinned directory, opening it, loading programs over it
//   - table.go: Table, over hashes, tries and arrays; read.go: reading whole maps
//   - slots.go, slot.go, inner.go: compiled policies; grace.go: when their place may be used again; trim.go: giving
//     memory back; verify.go: whether somebody else has changed them
//   - generations.go: policy generations, of which no flow has one that is handed out again; restamp.go: flows without those
//     that are not in force
//   - endpoints.go: the mapped array of endpoints; stores.go: the order in which words of an entry are written
//   - flows.go, counters.go, events.go: what the programs write
package bpfmaps
