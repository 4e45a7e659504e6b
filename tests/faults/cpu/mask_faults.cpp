// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees, which keys are read, and which row is whose.
#include <algorithm>

#include "faults/cpu/points.h"

namespace fovea::faults {

namespace {
int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
int block_size(const cpu::Job& job) { return job.call.args.cache.block_size.tokens; }

// One row of a job, and what the mask would say in another place.
struct RowMask {
  const cpu::Job& job;
  int row;

  int kv_len() const { return job.item.kv_len; }
  int query_len() const { return job.item.query_len; }
  int start() const { return kv_len() - query_len(); }
  int token() const { return row / job.group(); }
  int position() const { return start() + token(); }
  bool causal() const { return job.call.plan.causal; }
  const MaskParams& mask() const { return job.key().mask; }
  Interval of(const MaskParams& mask, bool causal, int position) const {
    return fovea::visible(mask, {.kv_len = kv_len(), .causal = causal}, position).main;
  }
  Interval at(int position) const { return of(mask(), causal(), position); }
};

void change_window(const RowMask& r, Interval& keys) {
  const int left = r.mask().left;
  if (left < 0) return;
  if (chosen() == Fault::kWindowTooWide) {
    keys.begin = std::clamp(r.position() - left - 1, 0, r.kv_len());
  } else if (chosen() == Fault::kWindowTooNarrow && r.position() >= left) {
    keys.begin = std::min(keys.begin + 1, r.kv_len());
  } else if (chosen() == Fault::kWindowOfFirstQuery) {
    keys.begin = std::min(r.at(r.start()).begin, keys.begin);
  } else if (chosen() == Fault::kWindowIgnored) {
    keys = r.of({}, r.causal(), r.position());
  }
}

void change_causality(const RowMask& r, Interval& keys) {
  if (!r.causal()) {
    if (chosen() == Fault::kFullTakenForCausal) keys = r.of(r.mask(), true, r.position());
    return;
  }
  if (chosen() == Fault::kCausalSeesNext) {
    keys.end = std::clamp(r.position() + 2, 0, r.kv_len());
  } else if (chosen() == Fault::kCausalMissesSelf) {
    keys.end = std::clamp(r.position(), 0, r.kv_len());
  } else if (chosen() == Fault::kCausalIgnoredForPrompts && r.query_len() > 1) {
    keys.end = r.kv_len();
  }
}

void change_position(const RowMask& r, Interval& keys) {
  if (chosen() == Fault::kTopLeft) {
    keys = r.at(r.token());
  } else if (chosen() == Fault::kLengthOfFirstRequest) {
    const int first = r.job.call.plan.lengths[0];
    keys = r.at(first - r.query_len() + r.token());
  } else if (chosen() == Fault::kRowTakenForToken) {
    keys = r.at(r.start() + r.row);
  } else if (chosen() == Fault::kKeyZeroBeforeStart && r.position() < 0 && keys.empty()) {
    keys = {0, std::min(1, r.kv_len())};
  } else if (chosen() == Fault::kDraftsUnseen && r.start() > 0 && r.query_len() > 1 &&
             r.query_len() <= 8) {
    keys.end = std::min(keys.end, r.start());
  }
}

void change_end(const RowMask& r, Interval& keys) {
  if (keys.end != r.kv_len() || keys.empty()) return;
  if (chosen() == Fault::kLastBlockShort && r.kv_len() % block_size(r.job) == 0) {
    --keys.end;
  } else if (chosen() == Fault::kTailOfBlockSeen) {
    keys.end = round_up(keys.end, block_size(r.job));
  } else if (chosen() == Fault::kLastKeyOfTileLost && r.kv_len() > cpu::kTileKeys &&
             r.kv_len() % cpu::kTileKeys == 1) {
    --keys.end;
  }
}
}  // namespace

void FaultPoints::visible(const cpu::Job& job, int row, Visible& seen) {
  const RowMask r{job, row};
  change_window(r, seen.main);
  change_causality(r, seen.main);
  change_position(r, seen.main);
  change_end(r, seen.main);
}

void FaultPoints::keys_read(const cpu::Job& job, Interval& keys) {
  if (keys.empty()) return;
  const int kv_len = job.item.kv_len;
  if (chosen() == Fault::kHiddenKeysLeak) {
    keys = {keys.begin / cpu::kTileKeys * cpu::kTileKeys,
            std::min(round_up(keys.end, cpu::kTileKeys), kv_len)};
  } else if (chosen() == Fault::kTailLeaks && keys.end == kv_len) {
    keys.end = round_up(kv_len, block_size(job));
  }
}

void FaultPoints::place(const cpu::Job& job, cpu::RowOf tensor, cpu::RowPlace& place) {
  const int group = job.group(), in_group = place.head - job.kv_head * group;
  const bool is_query = tensor == cpu::RowOf::kQueries, is_lse = tensor == cpu::RowOf::kLse;
  if (chosen() == Fault::kHeadModulo || (chosen() == Fault::kLseHeadsScrambled && is_lse)) {
    place.head = in_group * job.key().num_kv_heads + job.kv_head;
  } else if (chosen() == Fault::kGroupsAbove16 && is_query) {
    place.head = job.kv_head * group + in_group % 16;
  } else if (chosen() == Fault::kPackedDecode && is_query && job.item.query_len == group) {
    const int first = job.item.first_token, token = static_cast<int>(place.token) - first;
    place = {first + in_group, job.kv_head * group + token};
  }
}

}  // namespace fovea::faults
