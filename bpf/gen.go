// Package bpf is the contract between the programs in the kernel and the agent: the compiled object, and the Go types
// and constants generated from its BTF.
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package bpf -target bpfel -output-dir . -type event -type rule -type l4_page -type cell_block -type outcome -type asked -type walk_part -type addr_flags -type slot_flags -type rule_action -type rule_flags -type l4_index -type endpoint_flags -type place_numbers -type ct_state -type ct_flags -type ct_stamp -type event_flags -type drop_reason -type flow_limits -type other_stamps Margay margay.bpf.c -- -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -mcpu=v3 -I. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
