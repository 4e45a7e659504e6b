// SPDX-License-Identifier: Apache-2.0
// Every input of a call, spoiled in turn.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"

namespace fovea::conformance {

namespace {
using Shape = std::vector<std::int64_t>;

Shape shape_of(const TensorView& t) { return {t.shape().begin(), t.shape().end()}; }
Shape strides_of(const TensorView& t) { return {t.strides().begin(), t.strides().end()}; }

TensorView with_dtype(const TensorView& t, DType dtype) {
  return {t.data(), dtype, shape_of(t), strides_of(t), t.device()};
}
TensorView with_size(const TensorView& t, int dim, std::int64_t size) {
  Shape shape = shape_of(t);
  shape[static_cast<std::size_t>(dim)] = size;
  return {t.data(), t.dtype(), shape, strides_of(t), t.device()};
}
TensorView with_stride(const TensorView& t, int dim, std::int64_t stride) {
  Shape strides = strides_of(t);
  strides[static_cast<std::size_t>(dim)] = stride;
  return {t.data(), t.dtype(), shape_of(t), strides, t.device()};
}
// Of a single element every stride is right.
TensorView with_gaps(const TensorView& t, int dim) {
  return with_stride(t.size(dim) == 1 ? with_size(t, dim, 2) : t, dim, 2);
}
TensorView at(const TensorView& t, void* data) {
  return {data, t.dtype(), shape_of(t), strides_of(t), t.device()};
}
TensorView moved(const TensorView& t, std::ptrdiff_t bytes) {
  return at(t, t.data_as<std::byte>() + bytes);
}
TensorView elsewhere(const TensorView& t) {
  return {t.data(), t.dtype(), shape_of(t), strides_of(t), {DeviceType::kCuda, 0}};
}
DType wrong_float(DType t) { return t == DType::kF16 ? DType::kF32 : DType::kF16; }

// An edit that is a function of the call alone.
std::function<Edit()> plain(void (*edit)(Given&)) {
  return [edit] { return Edit(edit); };
}

// An edit of numbers in host memory, which the edit keeps.
template <class T, class Change>
std::function<Edit()> of_numbers(TensorView& (*tensor)(Given&), Change change) {
  return [tensor, change] {
    auto copy = std::make_shared<std::vector<T>>();
    return Edit([tensor, change, copy](Given& g) {
      TensorView& t = tensor(g);
      std::size_t extent = 1;
      for (int d = 0; d < t.ndim(); ++d)
        extent += static_cast<std::size_t>((t.size(d) - 1) * t.stride(d));
      copy->assign(t.data_as<T>(), t.data_as<T>() + extent);
      change(*copy, t);
      t = at(t, copy->data());
    });
  };
}
TensorView& table(Given& g) { return g.tables.block_table; }
TensorView& slots(Given& g) { return g.tables.slot_mapping; }
TensorView& lengths(Given& g) { return g.batch.seq_lens; }
TensorView& starts(Given& g) { return g.batch.query_start_loc; }

// An edit of what the host knows of a batch.
template <class Change>
std::function<Edit()> of_host(std::span<const int> CommonAttentionMetadata::* numbers,
                              Change change) {
  return [numbers, change] {
    auto copy = std::make_shared<std::vector<int>>();
    return Edit([numbers, change, copy](Given& g) {
      copy->assign((g.batch.*numbers).begin(), (g.batch.*numbers).end());
      change(*copy);
      g.batch.*numbers = *copy;
    });
  };
}
template <class Change>
std::function<Edit()> of_offsets(Change change) {
  return of_host(&CommonAttentionMetadata::query_start_loc_cpu, change);
}
template <class Change>
std::function<Edit()> of_upper_bounds(Change change) {
  return of_host(&CommonAttentionMetadata::seq_lens_cpu_upper_bound, change);
}

void add_batch(std::vector<Corruption>& all) {
  all.push_back(
      {"num_reqs is negative", "num_reqs", plain([](Given& g) { g.batch.num_reqs = -1; })});
  all.push_back(
      {"one request too many", "query_start_loc", plain([](Given& g) { ++g.batch.num_reqs; })});
  all.push_back({"one token too many", "query_start_loc_cpu",
                 plain([](Given& g) { ++g.batch.num_actual_tokens; })});
  all.push_back({"num_actual_tokens is negative", "num_actual_tokens",
                 plain([](Given& g) { g.batch.num_actual_tokens = INT_MIN; })});
  all.push_back({"max_query_len is too small", "max_query_len",
                 plain([](Given& g) { --g.batch.max_query_len; })});
  all.push_back(
      {"max_seq_len is too small", "max_seq_len", plain([](Given& g) { --g.batch.max_seq_len; })});
  all.push_back({"offsets that do not begin at 0", "query_start_loc_cpu",
                 of_offsets([](std::vector<int>& o) { o[0] = 1; })});
  all.push_back({"offsets that fall", "query_start_loc_cpu",
                 of_offsets([](std::vector<int>& o) { std::swap(o[1], o[2]); })});
  all.push_back({"offsets that are too few", "query_start_loc_cpu",
                 of_offsets([](std::vector<int>& o) { o.pop_back(); })});
  all.push_back({"offsets that differ from the host's", "query_start_loc",
                 of_numbers<std::int32_t>(&starts, [](auto& n, auto&) { ++n[1]; })});
  all.push_back({"offsets of another type", "query_start_loc", plain([](Given& g) {
                   g.batch.query_start_loc = with_dtype(g.batch.query_start_loc, DType::kI64);
                 })});
  all.push_back({"a negative length", "seq_lens",
                 of_numbers<std::int32_t>(&lengths, [](auto& n, auto&) { n[1] = -1; })});
  all.push_back({"a length above every bound", "max_seq_len",
                 of_numbers<std::int32_t>(&lengths, [](auto& n, auto&) { n[0] = INT_MAX; })});
  all.push_back({"lengths of another type", "seq_lens", plain([](Given& g) {
                   g.batch.seq_lens = with_dtype(g.batch.seq_lens, DType::kF32);
                 })});
  all.push_back({"lengths with gaps", "seq_lens",
                 plain([](Given& g) { g.batch.seq_lens = with_stride(g.batch.seq_lens, 0, 2); })});
  all.push_back({"lengths that are too few", "seq_lens",
                 plain([](Given& g) { g.batch.seq_lens = with_size(g.batch.seq_lens, 0, 1); })});
  all.push_back({"lengths without an address", "seq_lens",
                 plain([](Given& g) { g.batch.seq_lens = at(g.batch.seq_lens, nullptr); })});
  all.push_back({"lengths on another device", "seq_lens",
                 plain([](Given& g) { g.batch.seq_lens = elsewhere(g.batch.seq_lens); })});
  const std::string_view upper = "seq_lens_cpu_upper_bound";
  all.push_back({"upper bounds that are too few", upper,
                 of_upper_bounds([](std::vector<int>& n) { n.resize(1); })});
  all.push_back(
      {"a negative upper bound", upper, of_upper_bounds([](std::vector<int>& n) { n[1] = -1; })});
  all.push_back({"an upper bound below its length", upper,
                 of_upper_bounds([](std::vector<int>& n) { --n[2]; })});
}

// A batch that is in order, but more than the builder was made for.
void add_bounds(std::vector<Corruption>& all) {
  all.push_back({"more requests than the builder's bound", "num_reqs",
                 plain([](Given& g) { g.bounds.max_num_reqs = g.batch.num_reqs - 1; })});
  all.push_back({"more tokens than the builder's bound", "num_actual_tokens",
                 plain([](Given& g) { g.bounds.max_num_tokens = g.batch.num_actual_tokens - 1; })});
  all.push_back({"a length above the builder's bound", "seq_lens",
                 plain([](Given& g) { g.bounds.max_model_len = g.batch.max_seq_len - 1; })});
}

// What can be wrong with q, k, v and out.
void add_tensor(std::vector<Corruption>& all, std::string_view name,
                TensorView& (*tensor)(Given&)) {
  const auto add = [&](std::string_view what, TensorView (*change)(const TensorView&)) {
    all.push_back({what, name, [tensor, change] {
                     return Edit([tensor, change](Given& g) { tensor(g) = change(tensor(g)); });
                   }});
  };
  add("a tensor of another type",
      [](const TensorView& t) { return with_dtype(t, wrong_float(t.dtype())); });
  add("a tensor of integers", [](const TensorView& t) { return with_dtype(t, DType::kI32); });
  add("a tensor with a head too many",
      [](const TensorView& t) { return with_size(t, 1, t.size(1) + 1); });
  add("a tensor with a head too few",
      [](const TensorView& t) { return with_size(t, 1, t.size(1) - 1); });
  add("heads of another size", [](const TensorView& t) { return with_size(t, 2, t.size(2) - 1); });
  add("a tensor with a row too few",
      [](const TensorView& t) { return with_size(t, 0, t.size(0) - 1); });
  add("elements with gaps", [](const TensorView& t) { return with_gaps(t, 2); });
  add("a tensor without an address", [](const TensorView& t) { return at(t, nullptr); });
  add("a tensor at an odd address", [](const TensorView& t) { return moved(t, 1); });
  add("a tensor of another device", [](const TensorView& t) { return elsewhere(t); });
  add("a tensor of one dimension",
      [](const TensorView& t) { return TensorView(t.data(), t.dtype(), {t.size(0)}); });
}

void add_cache(std::vector<Corruption>& all) {
  const auto add = [&](std::string_view what, std::string_view argument, void (*edit)(Given&)) {
    all.push_back({what, argument, plain(edit)});
  };
  add("keys of another type", "cache.keys",
      [](Given& g) { g.cache.keys = with_dtype(g.cache.keys, wrong_float(g.cache.keys.dtype())); });
  add("values of another type", "cache.values", [](Given& g) {
    g.cache.values = with_dtype(g.cache.values, wrong_float(g.cache.values.dtype()));
  });
  add("a cache of another block size", "cache", [](Given& g) { ++g.cache.block_size.tokens; });
  add("keys with a head too few", "cache.keys",
      [](Given& g) { g.cache.keys = with_size(g.cache.keys, 2, g.cache.keys.size(2) - 1); });
  add("values of another head size", "cache.values",
      [](Given& g) { g.cache.values = with_size(g.cache.values, 3, g.cache.values.size(3) + 1); });
  add("values of fewer blocks", "cache.values",
      [](Given& g) { g.cache.values = with_size(g.cache.values, 0, g.cache.values.size(0) - 1); });
  add("keys without an address", "cache.keys",
      [](Given& g) { g.cache.keys = at(g.cache.keys, nullptr); });
  add("keys at an odd address", "cache.keys",
      [](Given& g) { g.cache.keys = moved(g.cache.keys, 1); });
  add("keys with gaps", "cache.keys", [](Given& g) { g.cache.keys = with_gaps(g.cache.keys, 3); });
  add("keys on another device", "cache.keys",
      [](Given& g) { g.cache.keys = elsewhere(g.cache.keys); });
  add("values in the memory of keys", "cache.values",
      [](Given& g) { g.cache.values = at(g.cache.values, g.cache.keys.data()); });
}

void add_tables(std::vector<Corruption>& all) {
  const auto put = [](std::int32_t id) {
    return of_numbers<std::int32_t>(&table, [id](auto& n, auto&) { n[0] = id; });
  };
  all.push_back({"a block id that is negative", "block_table", put(-1)});
  all.push_back({"a block id beyond the cache", "block_table", put(1 << 20)});
  all.push_back({"the largest block id", "block_table", put(INT_MAX)});
  all.push_back({"a table of another type", "block_table", plain([](Given& g) {
                   g.tables.block_table = with_dtype(g.tables.block_table, DType::kI64);
                 })});
  all.push_back({"a table with a row too few", "block_table", plain([](Given& g) {
                   g.tables.block_table = with_size(g.tables.block_table, 0, 2);
                 })});
  all.push_back({"a table without columns", "block_table", plain([](Given& g) {
                   g.tables.block_table = with_size(g.tables.block_table, 1, 0);
                 })});
  all.push_back({"a table without an address", "block_table", plain([](Given& g) {
                   g.tables.block_table = at(g.tables.block_table, nullptr);
                 })});
  all.push_back({"a slot beyond the cache", "slot_mapping",
                 of_numbers<std::int64_t>(&slots, [](auto& n, auto&) { n[2] = 1 << 30; })});
  all.push_back({"the largest slot", "slot_mapping",
                 of_numbers<std::int64_t>(&slots, [](auto& n, auto&) { n[0] = INT64_MAX; })});
  all.push_back({"slots of another type", "slot_mapping", plain([](Given& g) {
                   g.tables.slot_mapping = with_dtype(g.tables.slot_mapping, DType::kI32);
                 })});
  all.push_back({"a table on another device", "block_table",
                 plain([](Given& g) { g.tables.block_table = elsewhere(g.tables.block_table); })});
  all.push_back({"slots on another device", "slot_mapping", plain([](Given& g) {
                   g.tables.slot_mapping = elsewhere(g.tables.slot_mapping);
                 })});
  all.push_back({"slots in two dimensions", "slot_mapping", plain([](Given& g) {
                   g.tables.slot_mapping =
                       TensorView(g.tables.slot_mapping.data(), DType::kI64, {2, 3});
                 })});
}

void add_lse(std::vector<Corruption>& all) {
  const auto add = [&](std::string_view what, void (*edit)(Given&)) {
    all.push_back({what, "lse", plain(edit), true});
  };
  add("an LSE of another type", [](Given& g) { g.lse.data = with_dtype(g.lse.data, DType::kF16); });
  add("an LSE of integers", [](Given& g) { g.lse.data = with_dtype(g.lse.data, DType::kI32); });
  add("an LSE with a head too few",
      [](Given& g) { g.lse.data = with_size(g.lse.data, 0, g.lse.data.size(0) - 1); });
  add("an LSE with a head too many",
      [](Given& g) { g.lse.data = with_size(g.lse.data, 0, g.lse.data.size(0) + 1); });
  add("an LSE with a token too few",
      [](Given& g) { g.lse.data = with_size(g.lse.data, 1, g.lse.data.size(1) - 1); });
  add("an LSE of one dimension", [](Given& g) {
    g.lse.data = TensorView(g.lse.data.data(), DType::kF32, {g.lse.data.numel()});
  });
  add("an LSE whose tokens are one number",
      [](Given& g) { g.lse.data = with_stride(g.lse.data, 1, 0); });
  add("an LSE whose heads overlap", [](Given& g) { g.lse.data = with_stride(g.lse.data, 0, 1); });
  add("an LSE without an address", [](Given& g) { g.lse.data = at(g.lse.data, nullptr); });
  add("an LSE at an odd address", [](Given& g) { g.lse.data = moved(g.lse.data, 1); });
  add("an LSE on another device", [](Given& g) { g.lse.data = elsewhere(g.lse.data); });
  add("an LSE in the memory of q", [](Given& g) { g.lse.data = at(g.lse.data, g.q.data()); });
  add("an LSE in the output", [](Given& g) { g.lse.data = at(g.lse.data, g.out.data()); });
  add("an LSE in the cache", [](Given& g) { g.lse.data = at(g.lse.data, g.cache.values.data()); });
}

void add_scratch(std::vector<Corruption>& all) {
  all.push_back(
      {"an LSE that nobody promised", "lse", plain([](Given& g) { g.wants_lse = true; })});
  all.push_back(
      {"a batch of another mask", "metadata", plain([](Given& g) { g.batch.causal = false; })});
  all.push_back({"a workspace of another type", "workspace",
                 plain([](Given& g) { g.workspace = TensorView(g.q.data(), DType::kF32, {1}); })});
  all.push_back({"a workspace at an odd address", "workspace", plain([](Given& g) {
                   g.workspace = TensorView(g.workspace.data_as<std::byte>() + 1, DType::kU8,
                                            {g.workspace.size(0)});
                 })});
  all.push_back({"a workspace on another device", "workspace",
                 plain([](Given& g) { g.workspace = elsewhere(g.workspace); })});
  all.push_back({"a workspace that is too small", "workspace",
                 plain([](Given& g) { g.cuts_workspace = true; }), false, true});
  all.push_back({"an output in the memory of q", "out",
                 plain([](Given& g) { g.out = at(g.out, g.q.data()); })});
  all.push_back({"an output in the cache", "out",
                 plain([](Given& g) { g.out = at(g.out, g.cache.keys.data()); })});
}
}  // namespace

std::span<const Corruption> corruptions() {
  static const std::vector<Corruption> all = [] {
    std::vector<Corruption> made;
    add_batch(made);
    add_bounds(made);
    add_tensor(made, "q", [](Given& g) -> TensorView& { return g.q; });
    add_tensor(made, "k", [](Given& g) -> TensorView& { return g.k; });
    add_tensor(made, "v", [](Given& g) -> TensorView& { return g.v; });
    add_tensor(made, "out", [](Given& g) -> TensorView& { return g.out; });
    add_cache(made);
    add_tables(made);
    add_lse(made);
    add_scratch(made);
    return made;
  }();
  return all;
}

}  // namespace fovea::conformance
