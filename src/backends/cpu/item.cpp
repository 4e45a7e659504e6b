// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/item.h"

#include <cstddef>

#include "backends/cpu/fault_points.h"
#include "backends/cpu/item_run.h"

namespace fovea::cpu {

void reset_countdowns(const Call& call) {
  int* countdowns = countdowns_of(call.args);
  for (const Item& item : call.plan.items) {
    if (item.split < 0 || item.range_begin != item.tile_range_begin) continue;
    for (int head = 0; head < call.plan.key.num_kv_heads; ++head)
      countdowns[std::ptrdiff_t{item.split} * call.plan.key.num_kv_heads + head] = item.num_parts;
  }
}

void run_item(const Call& call, const Item& item, int kv_head, int worker) {
  run_item_over<NoFaults>(call, item, kv_head, worker);
}

}  // namespace fovea::cpu
