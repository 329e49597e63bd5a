/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Keeps types in BTF that no map key or value refers to directly, so that Go types are generated for them. Never used. */
#pragma once
#include "types.h"
#include "reasons.h"

#define EXPORT_TYPE(kind_, name_) const kind_ name_ *export_##name_ __attribute__((unused))

EXPORT_TYPE(struct, event);
EXPORT_TYPE(struct, rule);
EXPORT_TYPE(struct, l4_page);
EXPORT_TYPE(struct, cell_block);
EXPORT_TYPE(struct, outcome);
EXPORT_TYPE(struct, asked);
EXPORT_TYPE(struct, walk_part);
EXPORT_TYPE(enum, addr_flags);
EXPORT_TYPE(enum, slot_flags);
EXPORT_TYPE(enum, rule_action);
EXPORT_TYPE(enum, rule_flags);
EXPORT_TYPE(enum, l4_index);
EXPORT_TYPE(enum, endpoint_flags);
EXPORT_TYPE(enum, ct_state);
EXPORT_TYPE(enum, ct_flags);
EXPORT_TYPE(enum, ct_stamp);
EXPORT_TYPE(enum, event_flags);
EXPORT_TYPE(enum, drop_reason);
EXPORT_TYPE(enum, place_numbers);
EXPORT_TYPE(enum, flow_limits);
EXPORT_TYPE(enum, other_stamps);
