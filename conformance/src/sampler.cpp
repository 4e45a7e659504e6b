// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <variant>
#include <vector>

#include "call_check.h"
#include "rng.h"

namespace fovea::conformance {

namespace {
// One of the candidates that the row admits; if it admits none, one of all that it admits.
int draw_size(Rng& rng, const Sizes& sizes, const std::vector<int>& candidates) {
  const int size = admitted_size(sizes, candidates, rng());
  if (size == 0) throw std::logic_error("a row that admits no size up to 4096");
  return size;
}

int draw_head_size(Rng& rng, const Sizes& sizes) {
  if (rng.chance(3)) {
    return draw_size(rng, sizes, {192, 255, 256, 320, 511, 512, 768, 1023, 1024, 1100, 2048});
  }
  if (rng.chance(15)) {
    std::vector<int> any(160);
    for (std::size_t i = 0; i < any.size(); ++i) any[i] = static_cast<int>(i) + 1;
    return draw_size(rng, sizes, any);
  }
  return draw_size(rng, sizes, {1, 2, 3, 7, 8, 15, 16, 17, 24, 32, 40, 46, 64, 64, 72, 80, 128});
}

template <class E>
std::vector<E> members(FlagSet<E> set, std::initializer_list<E> all) {
  std::vector<E> found;
  for (const E e : all) {
    if (set.has(e)) found.push_back(e);
  }
  return found;
}

std::vector<DType> plain_caches(FlagSet<KVDType> kv_dtypes) {
  std::vector<DType> found;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (kv_dtypes.has(plain_kv_dtype(t))) found.push_back(t);
  }
  return found;
}

int draw_block_size(Rng& rng, const Sizes& sizes) {
  if (rng.chance(4)) return draw_size(rng, sizes, {48, 64, 100, 128, 256});
  return draw_size(rng, sizes, {1, 3, 7, 16, 16, 32});
}

void draw_types(Rng& rng, const fovea::Row& row, Case& c) {
  const auto floats = {DType::kF32, DType::kF16, DType::kBF16};
  c.dtype = rng.one_of(members(row.dtypes, floats));
  FlagSet<DType> outputs = row.output_dtypes;
  outputs.insert(c.dtype);
  c.out_dtype = rng.chance(60) ? c.dtype : rng.one_of(members(outputs, floats));
  const std::vector<DType> caches = plain_caches(row.kv_dtypes);
  const bool same = std::find(caches.begin(), caches.end(), c.dtype) != caches.end();
  c.kv_dtype = same && rng.chance(60) ? c.dtype : rng.one_of(caches);
}

void draw_heads(Rng& rng, const fovea::Row& row, Case& c) {
  std::vector<int> groups = {1, 1, 1, 1, 2, 2, 4, 4, 8, 24, 32, 48, 64};
  for (int g = 1; g <= 20; ++g) groups.push_back(g);
  const int group = draw_size(rng, row.group_sizes, groups);
  c.num_kv_heads = group > 4 ? rng.between(1, 2) : rng.one_of<int>({1, 1, 2, 3, 4, 5});
  if (rng.chance(5)) c.num_kv_heads = group > 8 ? 8 : rng.one_of<int>({7, 8, 16, 32});
  c.num_heads = group * c.num_kv_heads;
  c.head_size = draw_head_size(rng, row.head_sizes);
  c.head_size_v = c.head_size;
  if (!row.head_sizes_v.empty() && (rng.chance(30) || !admits(row.head_sizes_v, c.head_size))) {
    c.head_size_v = draw_head_size(rng, row.head_sizes_v);
  }
}

// Work that a call may cost: nearly all of them little, so that there can be many.
double draw_budget(Rng& rng) {
  const int roll = rng.between(1, 100);
  if (roll == 1) return 8e6;
  return roll <= 10 ? 1e6 : 1.5e5;
}

int draw_kv_len(Rng& rng, int block_size, bool is_long_call) {
  if (is_long_call) {
    if (rng.chance(2)) return rng.between(1000, 2500);  // more than any backend takes at once
    if (rng.chance(15)) return rng.between(3 * block_size + 1, std::max(4 * block_size, 400));
    return rng.between(3 * block_size + 1, 6 * block_size);
  }
  switch (rng.between(0, 6)) {
    case 0:
      return rng.between(0, 1);
    case 1:
      return block_size - 1;
    case 2:
      return block_size;
    case 3:
      return block_size + 1;
    default:
      return rng.between(1, 3 * block_size);
  }
}

Request draw_request(Rng& rng, int kv_len) {
  switch (rng.between(0, 9)) {
    case 0:
      return {0, kv_len};
    case 1:
    case 2:
    case 3:
      return {1, kv_len};
    case 4:
    case 5:
      return {kv_len, kv_len};
    case 6:
      return {kv_len + rng.between(1, 3), kv_len};
    default:
      return {rng.between(0, kv_len), kv_len};
  }
}

// Multiply-adds of one product of queries and keys, unmasked.
double work(const Case& c, const Request& r) {
  return static_cast<double>(r.query_len) * r.kv_len * c.num_heads * (c.head_size + c.head_size_v);
}

// As many requests as a server decodes at once; a few tokens each.
void draw_many_requests(Rng& rng, Case& c) {
  const int num_reqs = rng.between(9, 70);
  for (int i = 0; i < num_reqs; ++i)
    c.requests.push_back(draw_request(rng, rng.between(0, rng.chance(90) ? 3 : 40)));
}

// One query over more keys than fit in 12 bits, and perhaps in 14, if they fit in memory.
void draw_far_query(Rng& rng, Case& c) {
  constexpr double kElements = 4e6;
  const double of_token = static_cast<double>(c.num_kv_heads) * (c.head_size + c.head_size_v);
  const int most = static_cast<int>(std::min(kElements / of_token, 20000.0));
  c.requests.push_back({1, most <= 4097 ? most : rng.between(4097, most)});
}

void draw_requests(Rng& rng, int block_size, Case& c) {
  if (rng.chance(2)) return draw_many_requests(rng, c);
  if (rng.between(1, 250) == 1) return draw_far_query(rng, c);
  const double budget = draw_budget(rng);
  const int num_reqs = rng.one_of<int>({0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6});
  const bool is_long_call = rng.chance(75);
  double sum = 0;
  for (int i = 0; i < num_reqs; ++i) {
    const bool is_long_request = is_long_call && (i == 0 || rng.chance(30));
    Request r = draw_request(rng, draw_kv_len(rng, block_size, is_long_request));
    while (work(c, r) > budget - sum && r.query_len > 1) r.query_len /= 2;
    sum += work(c, r);
    c.requests.push_back(r);
  }
  rng.shuffle(c.requests.begin(), c.requests.end());
}

void draw_mask_and_logits(Rng& rng, const fovea::Row& row, std::optional<Feature> wish, Call& s) {
  Case& c = s.problem;
  const auto draws = [&](Feature f, int percent) {
    return row.features.has(f) && (wish == f || rng.chance(percent));
  };
  if (draws(Feature::kNonCausal, 35)) {
    s.non_causal = true;
    c.causal = rng.chance(25);
  }
  if (draws(Feature::kSlidingWindow, 40)) {
    c.window = rng.one_of<int>({1, 2, 3, 7, s.block_size, s.block_size + 1, 33, 1000});
  }
  if (draws(Feature::kSoftCap, 30)) {
    c.soft_cap = rng.one_of<float>({0.5F, 1.0F, 5.0F, 50.0F});
  }
  s.return_lse = draws(Feature::kLse, 60);
  const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_size)));
  c.scale = rng.chance(70) ? usual : rng.one_of<float>({1.0F, 0.5F, 0.1F, 2 * usual, -usual, 0.0F});
}

// Logits beyond what half precision holds, before and behind their scale, and beyond what a program
// may take for minus infinity. Powers of two: no order of a sum rounds, so that keys which are
// equal have equal logits in every right computation.
void make_extreme(Rng& rng, Call& s) {
  constexpr double kLarge = 256;
  s.q = Constant{rng.chance(50) ? kLarge : -kLarge};
  s.k = rng.chance(75) ? Rule(Constant{kLarge}) : Rule(Index{});
  s.problem.scale =
      1 / static_cast<float>(std::bit_floor(static_cast<unsigned>(s.problem.head_size)));
}

void draw_placement(Rng& rng, const fovea::Row& row, Call& s) {
  s.layout = rng.one_of(row.layouts);
  s.num_layers = rng.between(1, 3);
  s.cache_form = rng.one_of<CacheForm>({CacheForm::kPaged, CacheForm::kPaged, CacheForm::kPaged,
                                        CacheForm::kPlanes, CacheForm::kSparseKeys});
  if (s.cache_form != CacheForm::kPaged) s.num_layers = 1;
  if (can_cut(s) && rng.chance(30)) s.kernel_blocks_per_manager_block = rng.between(2, 4);
  s.layer = rng.between(0, s.num_layers - 1);
  s.strided = rng.one_of<Strided>(
      {Strided::kNone, Strided::kNone, Strided::kQ, Strided::kK, Strided::kV, Strided::kOut});
  s.flat = rng.chance(25);
  s.head_major = !s.flat && rng.chance(30);
  if (rng.chance(40)) s.padding_rows = rng.between(1, 5);
  s.padded_slots = rng.chance(50);
  s.block_zero_lives = rng.chance(30);
  s.lse_base = rng.chance(50) ? LseBase::kE : LseBase::k2;
  s.lse_layout = rng.chance(50) ? LseLayout::kHeadsTokens : LseLayout::kTokensHeads;
  s.num_workers = rng.between(1, 2);
}

// A pool whose offsets do not fit in 32 bits, of which the requests own the last blocks. Only pages
// that are touched take memory.
void make_giant(Call& s) {
  constexpr std::int64_t kElements = std::int64_t{1} << 32;
  const Case& c = s.problem;
  if (c.requests.empty()) return;
  const auto tokens = static_cast<int>(manager_block_tokens(s));
  const std::int64_t block = std::int64_t{tokens} * c.num_kv_heads * (c.head_size + c.head_size_v);
  const std::int64_t num_blocks = kElements / block;
  if (num_blocks * s.kernel_blocks_per_manager_block > INT_MAX) return;
  s.lazy_memory = true;
  s.num_layers = 1;
  s.layer = 0;
  s.num_blocks = num_blocks;
  std::int64_t next = num_blocks;
  for (const Request& r : c.requests) {
    std::vector<std::int32_t>& ids = s.blocks.emplace_back();
    for (int begin = 0; begin < r.kv_len; begin += tokens)
      ids.push_back(static_cast<std::int32_t>(--next));
  }
}
}  // namespace

int admitted_size(const Sizes& sizes, const std::vector<int>& candidates, std::uint64_t seed) {
  std::vector<int> fitting;
  for (const int c : candidates) {
    if (admits(sizes, c)) fitting.push_back(c);
  }
  constexpr std::size_t kEnough = 8;
  const bool none = fitting.empty();
  for (int size = 1; none && size <= 4096 && fitting.size() < kEnough; ++size) {
    if (admits(sizes, size)) fitting.push_back(size);
  }
  return fitting.empty() ? 0 : fitting[static_cast<std::size_t>(seed % fitting.size())];
}

bool admits_call(const fovea::Row& row, const Call& call) {
  fovea::Row one = row;
  one.query_len = {};
  one.devices = {};
  return admits(row.block_sizes, call.block_size) &&
         static_cast<bool>(validate({one}, problem_of(complete(layer_spec(call))), Device{}));
}

namespace {
Call draw_any(const fovea::Row& row, Rng& rng, std::optional<Feature> feature) {
  Call s;
  s.seed = rng();
  s.q = Normal{rng()};
  s.k = Normal{rng()};
  s.v = Normal{rng()};
  s.block_size = draw_block_size(rng, row.block_sizes);
  draw_types(rng, row, s.problem);
  draw_heads(rng, row, s.problem);
  draw_requests(rng, s.block_size, s.problem);
  draw_mask_and_logits(rng, row, feature, s);
  draw_placement(rng, row, s);
  if (rng.between(1, 200) == 1) make_giant(s);
  if (rng.chance(4)) make_extreme(rng, s);
  return s;
}
}  // namespace

Call draw_call(const fovea::Row& row, std::uint64_t seed, std::optional<Feature> feature) {
  Rng rng(mix(seed));
  Call call = draw_any(row, rng, feature);
  // What a row admits value by value it may still exclude together.
  for (int tries = 0; tries < 1000 && !admits_call(row, call); ++tries)
    call = draw_any(row, rng, feature);
  return call;
}

bool has_extreme_logits(const Call& call) {
  return std::holds_alternative<Constant>(call.q) && !std::holds_alternative<Normal>(call.k);
}

bool is_long(const Call& call) {
  return std::any_of(call.problem.requests.begin(), call.problem.requests.end(),
                     [&](const Request& r) { return r.kv_len > 3 * call.block_size; });
}

bool is_ragged(const Call& call) {
  const std::vector<Request>& requests = call.problem.requests;
  return std::adjacent_find(requests.begin(), requests.end(),
                            [](const Request& a, const Request& b) { return !(a == b); }) !=
         requests.end();
}

}  // namespace fovea::conformance
