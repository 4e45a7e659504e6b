// SPDX-License-Identifier: Apache-2.0
#include "attention/alternatives.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "attention/type_order.h"

namespace fovea {
namespace {

using What = Need::What;

// What is asked, and the alternatives found so far. add() takes a changed copy of the problem.
struct Finder {
  Need need;
  const Row& row;
  const Query& query;
  const Range& avoid;
  std::vector<Alternative> found = {};

  const Problem& problem() const { return query.problem; }
  bool may_be(int value) const { return !contains(avoid, value); }
  void add(const Problem& problem, std::int64_t distance) { add(problem, query.device, distance); }
  void add(const Problem& problem, const Device& device, std::int64_t distance) {
    Alternative a{.problem = problem, .device = device, .distance = distance};
    for (const Difference& d : differences(query, {a.problem, a.device, query.rule}))
      a.effort = std::max(a.effort, d.effort);
    found.push_back(a);
  }
};

// Values from which to look up and down: past `avoid`, or from the wanted one.
Range upwards(int wanted, const Range& avoid) {
  if (is_empty(avoid)) return {std::max(wanted, 1), INT_MAX};
  if (avoid.max == INT_MAX) return kNoValue;
  return {std::max({wanted, avoid.max + 1, 1}), INT_MAX};
}
Range downwards(int wanted, const Range& avoid) {
  if (is_empty(avoid)) return {1, wanted};
  if (avoid.min == INT_MIN) return kNoValue;
  return {1, std::min(wanted, avoid.min - 1)};
}

std::int64_t distance(std::int64_t a, std::int64_t b) { return std::abs(a - b); }

void add_head_sizes(Finder& f) {
  const int wanted = f.problem().head_size;
  for (const int size : {first_admitted(f.row.head_sizes, upwards(wanted, f.avoid)),
                         last_admitted(f.row.head_sizes, downwards(wanted, f.avoid))}) {
    if (size == 0) continue;
    Problem p = f.problem();
    if (p.head_size_v == p.head_size) p.head_size_v = size;
    p.head_size = size;
    f.add(p, distance(size, wanted));
  }
}

void add_value_head_sizes(Finder& f) {
  const int wanted = f.problem().head_size_v, keys = f.problem().head_size;
  const auto add_v = [&](int size) {
    if (size <= 0) return;
    Problem p = f.problem();
    p.head_size_v = size;
    f.add(p, distance(size, wanted));
  };
  if (!f.row.head_sizes_v.empty()) {
    add_v(first_admitted(f.row.head_sizes_v, upwards(wanted, f.avoid)));
    add_v(last_admitted(f.row.head_sizes_v, downwards(wanted, f.avoid)));
    return;
  }
  if (f.may_be(keys)) add_v(keys);  // the row wants equal sizes
  if (!f.may_be(wanted) || !admits(f.row.head_sizes, wanted)) return;
  Problem p = f.problem();
  p.head_size = wanted;
  f.add(p, distance(keys, wanted));
}

void add_dtypes(Finder& f) {
  std::int64_t place = 0;
  for (const DType dtype : by_closeness(f.row.dtypes, f.problem().dtype)) {
    if (!f.may_be(static_cast<int>(dtype))) continue;
    Problem p = f.problem();
    if (p.output_dtype == p.dtype) p.output_dtype = dtype;
    p.dtype = dtype;
    f.add(p, place++);
  }
}

void add_kv_dtypes(Finder& f) {
  std::int64_t place = 0;
  const Problem& wanted = f.problem();
  for (const KVDType format : by_closeness(f.row.kv_dtypes, wanted.kv_dtype, wanted.dtype)) {
    if (!f.may_be(static_cast<int>(format))) continue;
    Problem p = wanted;
    p.kv_dtype = format;
    f.add(p, place++);
  }
}

// Of the sizes whose multiples are offered too (BlockRule::kDivides), how many of one union member
// are tried.
constexpr int kMostParts = 64;

// The smallest (or largest) block size in `in` that the row takes by the rule; 0: none.
int block_size_in(const Row& row, BlockRule rule, const Range& in, bool smallest) {
  if (is_empty(in)) return 0;
  std::int64_t best = 0;
  const auto consider = [&](std::int64_t size) {
    if (size < in.min || size > in.max || size < 1) return;
    if (best == 0 || (smallest ? size < best : size > best)) best = size;
  };
  if (rule == BlockRule::kExact) {
    for (const int size : framework_block_sizes())
      if (admits(row.block_sizes, size)) consider(size);
    return static_cast<int>(best);
  }
  for (const Multiples& m : row.block_sizes) {
    consider(smallest ? first_admitted({m}, in) : last_admitted({m}, in));
    int part = first_admitted({m}, {1, INT_MAX});
    for (int i = 0; i < kMostParts && part != 0 && part < INT_MAX; ++i) {
      const std::int64_t end = smallest ? std::int64_t{in.min} + part - 1 : in.max;
      consider(end / part * part);
      part = first_admitted({m}, {part + 1, INT_MAX});
    }
  }
  return static_cast<int>(best);
}

void add_block_sizes(Finder& f) {
  const int wanted = f.problem().block_size.tokens;
  for (const bool up : {true, false}) {
    const Range in = up ? upwards(wanted, f.avoid) : downwards(wanted, f.avoid);
    const int size = block_size_in(f.row, f.query.rule, in, up);
    if (size == 0) continue;
    Problem p = f.problem();
    p.block_size.tokens = size;
    f.add(p, distance(size, wanted));
  }
}

void add_features(Finder& f) {
  Problem p = f.problem();
  const bool on = p.features.has(f.need.feature);
  if (!f.may_be(on ? 0 : 1) || (!on && !f.row.features.has(f.need.feature))) return;
  if (on)
    p.features = p.features - FlagSet<Feature>{f.need.feature};
  else
    p.features.insert(f.need.feature);
  f.add(p, 0);
}

void add_devices(Finder& f) {
  const DeviceRange& range = f.row.devices;
  Device device = f.query.device;
  if (range.type == DeviceType::kCpu) {
    if (!f.may_be(0)) return;
    device = Device{.cpu_level = range.min_level, .num_cores = device.num_cores};
    f.add(f.problem(), device, 0);
    return;
  }
  const Range offered = intersect(range.compute_capability, {0, INT_MAX});
  const int here = device.id.type == DeviceType::kCuda ? compute_capability(device) : 0;
  Range above = intersect(offered, {here, INT_MAX}), below = intersect(offered, {0, here});
  if (!is_empty(f.avoid)) {
    above = f.avoid.max == INT_MAX ? kNoValue : intersect(offered, {f.avoid.max + 1, INT_MAX});
    below = f.avoid.min <= 0 ? kNoValue : intersect(offered, {0, f.avoid.min - 1});
  }
  for (const auto& [in, value] : {std::pair{above, above.min}, std::pair{below, below.max}}) {
    if (is_empty(in)) continue;
    device.id = {DeviceType::kCuda, device.id.index};
    device.cc_major = value / 10;
    device.cc_minor = value % 10;
    f.add(f.problem(), device, distance(value, here));
  }
}

void add_attn_types(Finder& f) {
  for (int i = 0; i <= static_cast<int>(AttentionType::kEncoderDecoder); ++i) {
    if (!f.row.attn_types.has(static_cast<AttentionType>(i)) || !f.may_be(i)) continue;
    Problem p = f.problem();
    p.attn_type = static_cast<AttentionType>(i);
    f.add(p, i);
  }
}

// Heads in another ratio: KV heads are repeated, query heads of zeros added; else fewer of one.
void add_heads(Finder& f) {
  const Problem& p = f.problem();
  const std::int64_t kv = std::max(p.num_kv_heads, 1);
  const auto add = [&](std::int64_t heads, std::int64_t kv_heads) {
    if (heads > INT_MAX || kv_heads > INT_MAX) return;
    Problem q = p;
    q.num_heads = static_cast<int>(heads);
    q.num_kv_heads = static_cast<int>(kv_heads);
    f.add(q, distance(heads, p.num_heads) + distance(kv_heads, p.num_kv_heads));
  };
  const auto is_ratio = [&](std::int64_t ratio) {
    return ratio <= INT_MAX && f.may_be(static_cast<int>(ratio)) &&
           admits(f.row.group_sizes, static_cast<int>(ratio));
  };
  const int ratio = group_size(p);
  std::int64_t d = 1;  // KV heads that divide the query heads
  while ((d + 1) * (d + 1) <= p.num_heads) ++d;
  for (; d >= 1; --d) {
    if (p.num_heads <= 0 || p.num_heads % d != 0) continue;
    if (is_ratio(p.num_heads / d)) add(p.num_heads, d);
    if (is_ratio(d)) add(p.num_heads, p.num_heads / d);
  }
  if (const int up = first_admitted(f.row.group_sizes, upwards(ratio, f.avoid)); up != 0)
    add(kv * up, kv);
  if (const int down = last_admitted(f.row.group_sizes, downwards(ratio, f.avoid)); down != 0)
    add(kv * down, kv);
}

void add_query_lens(Finder& f) {
  const auto add = [&](const Range& lengths) {
    if (is_empty(lengths)) return;
    Problem p = f.problem();
    p.query_len = lengths;
    f.add(p, distance(lengths.min, f.problem().query_len.min));
  };
  Range live = intersect(f.row.query_len, f.problem().query_len);
  if (is_empty(live)) live = f.row.query_len;
  if (is_empty(f.avoid)) return add(live);
  if (f.avoid.min > INT_MIN) add(intersect(live, {live.min, f.avoid.min - 1}));
  if (f.avoid.max < INT_MAX) add(intersect(live, {f.avoid.max + 1, live.max}));
}

void add_all(Finder& f) {
  switch (f.need.what) {
    case What::kHeadSize:
      return add_head_sizes(f);
    case What::kDType:
      return add_dtypes(f);
    case What::kKVDType:
      return add_kv_dtypes(f);
    case What::kBlockSize:
      return add_block_sizes(f);
    case What::kFeature:
      return add_features(f);
    case What::kDevice:
      return add_devices(f);
    case What::kAttnType:
      return add_attn_types(f);
    case What::kHeadSizeV:
      return add_value_head_sizes(f);
    case What::kGroupSize:
      return add_heads(f);
    case What::kQueryLen:
      return add_query_lens(f);
    case What::kOutputDType: {
      Problem p = f.problem();
      p.output_dtype = p.dtype;
      return f.add(p, 0);
    }
    case What::kLayout:
      for (std::size_t i = 0; i < f.row.layouts.size(); ++i) {
        Problem p = f.problem();
        p.layout = f.row.layouts[i];
        f.add(p, static_cast<std::int64_t>(i));
      }
  }
}

}  // namespace

int first_admitted(const Sizes& sizes, const Range& in) {
  std::int64_t best = 0;
  for (const Multiples& m : sizes) {
    if (m.base <= 0) continue;
    const std::int64_t least = std::max({m.min, in.min, 1});
    const std::int64_t first = (least + m.base - 1) / m.base * m.base;
    if (first <= std::min(m.max, in.max) && (best == 0 || first < best)) best = first;
  }
  return static_cast<int>(best);
}

int last_admitted(const Sizes& sizes, const Range& in) {
  int best = 0;
  for (const Multiples& m : sizes) {
    if (m.base <= 0) continue;
    const int last = std::min(m.max, in.max) / m.base * m.base;
    if (last >= std::max({m.min, in.min, 1})) best = std::max(best, last);
  }
  return best;
}

std::vector<Alternative> alternatives(Need need, const Row& row, const Query& query,
                                      const Range& avoid) {
  Finder finder{need, row, query, avoid};
  add_all(finder);
  std::ranges::stable_sort(finder.found, {},
                           [](const Alternative& a) { return std::pair(a.effort, a.distance); });
  return std::move(finder.found);
}

}  // namespace fovea
