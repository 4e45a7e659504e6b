// SPDX-License-Identifier: Apache-2.0
#include "oracle/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace fovea::oracle {

namespace {
int between(Rng& rng, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(rng);
}
bool chance(Rng& rng, int percent) { return between(rng, 1, 100) <= percent; }

template <class T>
T one_of(Rng& rng, const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(between(rng, 0, static_cast<int>(choices.size()) - 1))];
}

// One of the candidates that the row admits; if it admits none, one of all that it admits.
int admitted_size(Rng& rng, const Sizes& sizes, const std::vector<int>& candidates) {
  std::vector<int> fitting;
  for (const int c : candidates) {
    if (admits(sizes, c)) fitting.push_back(c);
  }
  for (int size = 1; fitting.empty() && size <= 4096; ++size) {
    if (admits(sizes, size)) fitting.push_back(size);
  }
  if (fitting.empty()) throw std::logic_error("a row that admits no size up to 4096");
  return one_of(rng, fitting);
}

int draw_head_size(Rng& rng, const Sizes& sizes) {
  if (chance(rng, 4)) {
    return admitted_size(rng, sizes, {192, 255, 256, 320, 511, 512, 768, 1023, 1024});
  }
  if (chance(rng, 15)) {
    std::vector<int> any(160);
    for (std::size_t i = 0; i < any.size(); ++i) any[i] = static_cast<int>(i) + 1;
    return admitted_size(rng, sizes, any);
  }
  return admitted_size(rng, sizes,
                       {1, 2, 3, 7, 8, 15, 16, 17, 24, 32, 40, 46, 64, 72, 80, 96, 128});
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

void draw_types(Rng& rng, const fovea::Row& row, Case& c) {
  const auto floats = {DType::kF32, DType::kF16, DType::kBF16};
  c.dtype = one_of(rng, members(row.dtypes, floats));
  FlagSet<DType> outputs = row.output_dtypes;
  outputs.insert(c.dtype);
  c.out_dtype = chance(rng, 60) ? c.dtype : one_of(rng, members(outputs, floats));
  const std::vector<DType> caches = plain_caches(row.kv_dtypes);
  const bool same = std::find(caches.begin(), caches.end(), c.dtype) != caches.end();
  c.kv_dtype = same && chance(rng, 60) ? c.dtype : one_of(rng, caches);
}

void draw_heads(Rng& rng, const fovea::Row& row, Case& c) {
  const int group = admitted_size(rng, row.group_sizes, {1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17});
  c.num_kv_heads = group > 4 ? between(rng, 1, 2) : one_of<int>(rng, {1, 1, 2, 3, 5});
  c.num_heads = group * c.num_kv_heads;
  c.head_size = draw_head_size(rng, row.head_sizes);
  c.head_size_v = c.head_size;
  if (!row.head_sizes_v.empty() && (chance(rng, 30) || !admits(row.head_sizes_v, c.head_size))) {
    c.head_size_v = draw_head_size(rng, row.head_sizes_v);
  }
}

int draw_kv_len(Rng& rng, int block_size) {
  switch (between(rng, 0, 9)) {
    case 0:
      return between(rng, 0, 1);
    case 1:
      return block_size - 1;
    case 2:
      return block_size;
    case 3:
      return block_size + 1;
    case 4:
      if (chance(rng, 5)) return between(rng, 1000, 2500);  // more than any backend takes at once
      return chance(rng, 30) ? between(rng, 120, 500) : between(rng, 0, 20);
    default:
      return between(rng, 1, 80);
  }
}

Request draw_request(Rng& rng, int block_size) {
  Request r;
  r.kv_len = draw_kv_len(rng, block_size);
  switch (between(rng, 0, 9)) {
    case 0:
      r.query_len = 0;
      break;
    case 1:
    case 2:
    case 3:
      r.query_len = 1;
      break;
    case 4:
    case 5:
      r.query_len = r.kv_len;
      break;
    case 6:
      r.query_len = r.kv_len + between(rng, 1, 3);
      break;
    default:
      r.query_len = between(rng, 0, r.kv_len);
  }
  return r;
}

// Multiply-adds of one product of queries and keys, unmasked.
double work(const Case& c, const Request& r) {
  return static_cast<double>(r.query_len) * r.kv_len * c.num_heads * (c.head_size + c.head_size_v);
}

void draw_requests(Rng& rng, int block_size, Case& c) {
  constexpr double kMaxWork = 8e6;  // keeps thousands of samples within a minute
  const int num_reqs = between(rng, 0, 6);
  double sum = 0;
  for (int i = 0; i < num_reqs; ++i) {
    Request r = draw_request(rng, block_size);
    while (work(c, r) > kMaxWork - sum && r.query_len > 1) r.query_len /= 2;
    sum += work(c, r);
    c.requests.push_back(r);
  }
}

void draw_mask_and_logits(Rng& rng, const fovea::Row& row, Sample& s) {
  Case& c = s.problem;
  if (row.features.has(Feature::kNonCausal) && chance(rng, 40)) {
    s.non_causal = true;
    c.causal = chance(rng, 30);
  }
  if (row.features.has(Feature::kSlidingWindow) && chance(rng, 45)) {
    c.window = one_of<int>(rng, {1, 2, 3, 7, s.block_size, s.block_size + 1, 33, 1000});
  }
  if (row.features.has(Feature::kSoftCap) && chance(rng, 30)) {
    c.soft_cap = one_of<float>(rng, {0.5F, 1.0F, 5.0F, 50.0F});
  }
  const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_size)));
  c.scale = chance(rng, 70) ? usual : one_of<float>(rng, {1.0F, 0.5F, 0.1F, 2 * usual});
}

void draw_placement(Rng& rng, const fovea::Row& row, Sample& s) {
  s.layout = one_of(rng, row.layouts);
  s.num_layers = between(rng, 1, 3);
  // Pages of a manager block can only be cut where its tokens are outermost in one layer.
  if (s.layout == CacheLayout::kLBNHC && chance(rng, 30)) {
    s.kernel_blocks_per_manager_block = between(rng, 2, 4);
  }
  s.cache_form = one_of<CacheForm>(rng, {CacheForm::kPaged, CacheForm::kPaged, CacheForm::kPaged,
                                         CacheForm::kPlanes, CacheForm::kSparseKeys});
  if (s.cache_form == CacheForm::kPlanes) s.kernel_blocks_per_manager_block = 1;
  if (s.cache_form != CacheForm::kPaged) s.num_layers = 1;
  s.layer = between(rng, 0, s.num_layers - 1);
  s.strided = one_of<Strided>(
      rng, {Strided::kNone, Strided::kNone, Strided::kQ, Strided::kK, Strided::kV, Strided::kOut});
  s.flat = chance(rng, 25);
  s.head_major = !s.flat && chance(rng, 30);
  if (chance(rng, 40)) s.padding_rows = between(rng, 1, 5);
  s.padded_slots = chance(rng, 50);
  s.block_zero_lives = chance(rng, 30);
  s.return_lse = row.features.has(Feature::kLse) && chance(rng, 70);
  s.lse_base = chance(rng, 50) ? LseBase::kE : LseBase::k2;
  s.lse_layout = chance(rng, 50) ? LseLayout::kHeadsTokens : LseLayout::kTokensHeads;
  s.num_workers = between(rng, 1, 2);
}

std::string_view name_of(CacheForm f) {
  constexpr std::array<std::string_view, 3> kNames = {"paged", "planes", "sparse keys"};
  return kNames.at(static_cast<std::size_t>(f));
}

std::string_view name_of(Strided s) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "q", "k", "v", "out"};
  return kNames.at(static_cast<std::size_t>(s));
}
}  // namespace

std::string describe(const Sample& s) {
  std::ostringstream text;
  text << "seed " << s.seed << ": " << describe(s.problem) << " BS=" << s.block_size << 'x'
       << s.kernel_blocks_per_manager_block << " layout " << fovea::name_of(s.layout) << " layer "
       << s.layer << '/' << s.num_layers << ' ' << name_of(s.cache_form) << " strided "
       << name_of(s.strided) << (s.head_major ? " head-major" : "") << (s.flat ? " flat" : "")
       << " padding " << s.padding_rows << (s.padded_slots ? " (slots too)" : "")
       << (s.block_zero_lives ? " block 0 lives" : "") << " workers " << s.num_workers;
  if (s.return_lse) {
    text << " lse base " << (s.lse_base == LseBase::kE ? "e" : "2")
         << (s.lse_layout == LseLayout::kHeadsTokens ? " [heads, tokens]" : " [tokens, heads]");
  }
  return text.str();
}

Sample draw_sample(const fovea::Row& row, std::uint64_t seed) {
  Rng rng(seed);
  Sample s;
  s.seed = seed;
  s.block_size = admitted_size(rng, row.block_sizes, {1, 3, 7, 16, 16, 32});
  draw_types(rng, row, s.problem);
  draw_heads(rng, row, s.problem);
  draw_requests(rng, s.block_size, s.problem);
  draw_mask_and_logits(rng, row, s);
  draw_placement(rng, row, s);
  return s;
}

namespace {
// What no query of the step sees may have been freed and overwritten: it becomes NaN.
void poison_hidden(const Case& c, const Request& r, Values& v) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto row = [&](std::vector<double>& all, int key, int size) {
    const std::ptrdiff_t width = static_cast<std::ptrdiff_t>(c.num_kv_heads) * size;
    std::fill_n(all.begin() + key * width, width, kNaN);
  };
  for (int key = 0; key < r.kv_len - r.query_len; ++key) {
    bool is_seen = false;
    for (int i = 0; i < r.query_len && !is_seen; ++i) is_seen = is_visible(c, r, i, key);
    if (is_seen) continue;
    row(v.keys, key, c.head_size);
    row(v.values, key, c.head_size_v);
  }
}
}  // namespace

std::vector<Values> draw_values(const Case& c, std::uint64_t seed) {
  Rng rng(seed);
  std::normal_distribution<double> normal;
  const Fill fill = [&](int, int, int) { return normal(rng); };
  std::vector<Values> all;
  for (const Request& r : c.requests) {
    poison_hidden(c, r, all.emplace_back(make_values(c, r, {fill, fill, fill})));
  }
  return all;
}

}  // namespace fovea::oracle
