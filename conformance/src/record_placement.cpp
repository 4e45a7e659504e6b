// SPDX-License-Identifier: Apache-2.0
#include "record_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/base/error.h"

namespace fovea::conformance {

namespace {
// One of q, k, v and out.
struct Tensor {
  std::string_view name;
  const TensorView& view;
  DType dtype;
  int heads, size;
  Strides TensorStrides::* strides;
};
std::array<Tensor, 4> tensors_of(const LayerSpec& s, const LayerCall& call) {
  return {{{"q", call.q, s.dtype, s.num_heads, s.head_size, &TensorStrides::q},
           {"k", call.k, s.dtype, s.num_kv_heads, s.head_size, &TensorStrides::k},
           {"v", call.v, s.dtype, s.num_kv_heads, s.head_size_v, &TensorStrides::v},
           {"out", call.out, *s.output_dtype, s.num_heads, s.head_size_v, &TensorStrides::out}}};
}

void check_shape(std::string_view name, const TensorView& t, DType dtype,
                 std::initializer_list<std::int64_t> shape) {
  const std::array dtypes = {dtype};
  check_tensor(t, {.argument = name, .dtypes = dtypes, .shape = {shape.begin(), shape.size()}});
}

std::int64_t at(const TensorView& table, std::int64_t row, std::int64_t column) {
  return table.data_as<const std::int32_t>()[row * table.stride(0) + column * table.stride(1)];
}

[[noreturn]] void refuse(std::string_view name, const TensorView& t, std::string_view expected) {
  throw InputError(name, describe(t), expected);
}

void check_table(const TensorView& table, const CommonAttentionMetadata& batch,
                 const KVCacheView& cache) {
  if (batch.num_reqs == 0) return;
  check_shape("block_table", table, DType::kI32, {-1, -1});
  const std::int64_t num_blocks = cache.keys.size(0), size = cache.block_size.tokens;
  for (int r = 0; r < batch.num_reqs; ++r) {
    const std::int64_t len = batch.seq_lens.data_as<const int>()[r], used = (len + size - 1) / size;
    if (r >= table.size(0) || used > table.size(1))
      refuse("block_table", table, fmt::format("{} blocks of request {}", used, r));
    for (std::int64_t b = 0; b < used; ++b) {
      if (const std::int64_t id = at(table, r, b); id < 0 || id >= num_blocks)
        throw InputError("block_table", fmt::format("id {} in row {}", id, r),
                         fmt::format("ids of the {} blocks of the cache", num_blocks));
    }
  }
}

// Strides, where they step over something. A call knows no tensor that repeats itself.
Strides strides_of(const Tensor& t, std::int64_t rows) {
  const std::int64_t head = t.view.ndim() == 2 || t.heads == 1 ? t.size : t.view.stride(1);
  const std::int64_t token = rows <= 1 ? t.heads * head : t.view.stride(0);
  if (token <= 0 || head <= 0) refuse(t.name, t.view, "strides above 0");
  return {.token = token == t.heads * head ? 0 : token, .head = head == t.size ? 0 : head};
}

std::int64_t stride_of(const Lse& lse, int num_heads, std::int64_t rows) {
  const bool heads_first = lse.layout == LseLayout::kHeadsTokens;
  const std::int64_t outer = heads_first ? num_heads : rows, inner = heads_first ? rows : num_heads;
  if (lse.data.ndim() != 2 || lse.data.size(0) != outer || lse.data.size(1) != inner)
    refuse("lse", lse.data, fmt::format("[{}, {}], the rows of out", outer, inner));
  if (inner > 1 && lse.data.stride(1) != 1) refuse("lse", lse.data, "a dense last dimension");
  if (outer <= 1 || lse.data.stride(0) == inner) return 0;
  if (lse.data.stride(0) <= 0) refuse("lse", lse.data, "a stride above 0");
  return lse.data.stride(0);
}

// Bytes from one block, token and head to the next. Blocks are those of the kernel.
struct Steps {
  std::int64_t block = 0, token = 0, head = 0;
};

class Cache {
 public:
  Cache(const LayerSpec& spec, const KVCacheView& view, int ratio)
      : spec_(spec), view_(view), ratio_(ratio) {
    num_blocks_ = view.keys.size(0) / ratio;
  }

  // Layout and form as one of those that a call can have.
  void find(Call& to) const {
    std::vector<CacheLayout> layouts = {CacheLayout::kLBNHC};  // the usual one, if in doubt
    layouts.insert(layouts.end(), kAllCacheLayouts.begin(), kAllCacheLayouts.end());
    if (spec_.layout) layouts = {*spec_.layout};
    for (const CacheLayout layout : layouts) {
      for (const int num_layers : {1, layers_in_a_block()}) {
        to.layout = layout;
        to.num_layers = num_layers;
        if (is_paged(to)) return;
      }
    }
    to.layout = layouts[0];
    to.num_layers = 1;
    for (const CacheForm form : {CacheForm::kPlanes, CacheForm::kSparseKeys}) {
      to.cache_form = form;
      if (has_form(form)) return;
    }
    throw InputError(
        "cache", fmt::format("keys {}, values {}", describe(view_.keys), describe(view_.values)),
        "keys and values in a layout or a form of docs/call_file.md");
  }

 private:
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(view_.keys.dtype())); }
  std::int64_t k_head() const { return spec_.head_size * element(); }
  std::int64_t v_head() const { return spec_.head_size_v * element(); }

  // How many layers lie within one step from block to block.
  int layers_in_a_block() const {
    const std::int64_t page = spec_.block_size.tokens * spec_.num_kv_heads * (k_head() + v_head());
    const std::int64_t block = view_.keys.stride(0) * element();
    const bool is_known = ratio_ == 1 && num_blocks_ > 1 && block > page && block % page == 0;
    return is_known && std::in_range<int>(block / page) ? static_cast<int>(block / page) : 1;
  }

  bool has_steps(const TensorView& t, const Steps& s) const {
    const auto is_step = [&](int dim, std::int64_t bytes) {
      return t.size(dim) <= 1 || t.stride(dim) * element() == bytes;
    };
    return is_step(0, ratio_ > 1 ? view_.block_size.tokens * s.token : s.block) &&
           is_step(1, s.token) && is_step(2, s.head);
  }
  bool lie_apart_by(std::int64_t bytes) const {
    return num_blocks_ == 0 ||
           view_.values.data_as<const std::byte>() - view_.keys.data_as<const std::byte>() == bytes;
  }

  bool is_paged(const Call& call) const {
    const PagedLayout l =
        make_paged_layout(kv_cache_spec(complete(layer_spec(call))), call.layout, call.num_layers,
                          std::max<std::int64_t>(num_blocks_, 1));
    const Steps steps{l.block_stride, l.token_stride, l.head_stride};
    return has_steps(view_.keys, steps) && has_steps(view_.values, steps) &&
           lie_apart_by(l.value_offset);
  }
  bool has_form(CacheForm form) const {
    const std::int64_t sparse = form == CacheForm::kSparseKeys ? 2 : 1;
    const std::int64_t k_token = sparse * spec_.num_kv_heads * k_head();
    const std::int64_t v_token = spec_.num_kv_heads * v_head();
    const std::int64_t k_block = spec_.block_size.tokens * k_token;
    const std::int64_t v_block = spec_.block_size.tokens * v_token;
    if (form == CacheForm::kSparseKeys)
      return has_steps(view_.keys, {k_block, k_token, k_head()}) &&
             has_steps(view_.values, {v_block, v_token, v_head()}) &&
             lie_apart_by(num_blocks_ * k_block);
    return ratio_ == 1 && has_steps(view_.keys, {k_block + v_block, k_token, k_head()}) &&
           has_steps(view_.values, {k_block + v_block, v_token, v_head()}) && lie_apart_by(k_block);
  }

  const LayerSpec& spec_;
  const KVCacheView& view_;
  int ratio_;
  std::int64_t num_blocks_ = 0;  // of the manager
};

// Manager blocks of each request. One that no query sees may be freed and anybody's, one that holds
// the beginning of several requests is read only: each becomes one that nobody else has.
class Blocks {
 public:
  Blocks(const LayerSpec& spec, const TensorView& table, int ratio)
      : spec_(spec), table_(table), ratio_(ratio) {}

  void find(Call& to) {
    const std::int64_t tokens = spec_.block_size.tokens;
    for (std::size_t r = 0; r < to.problem.requests.size(); ++r) {
      const Request& request = to.problem.requests[r];
      const std::int64_t seen = first_seen(spec_, request, to.problem.causal);
      std::vector<std::int32_t>& ids = to.blocks.emplace_back();
      for (std::int64_t begin = 0; begin < request.kv_len; begin += tokens) {
        const std::int64_t end = std::min<std::int64_t>(begin + tokens, request.kv_len);
        const bool is_written = request.query_len > 0 && end > request.kv_len - request.query_len;
        ids.push_back(
            end <= seen ? kAny : claim(manager_block(static_cast<int>(r), begin, end), is_written));
      }
    }
    for (std::vector<std::int32_t>& ids : to.blocks) {
      for (std::int32_t& id : ids) {
        if (id == kAny) id = next_free();
      }
    }
    to.num_blocks = std::max<std::int64_t>({to.num_blocks, next_, 1});
  }

 private:
  static constexpr std::int32_t kAny = -1;

  std::int32_t manager_block(int r, std::int64_t begin, std::int64_t end) const {
    const std::int64_t size = spec_.kernel_block_size.tokens;
    const std::int64_t first = at(table_, r, begin / size);
    for (std::int64_t p = begin; p < end; p += size) {
      const std::int64_t expected = first + (p - begin) / size, id = at(table_, r, p / size);
      if (first % ratio_ != 0 || id != expected)
        throw InputError("block_table",
                         fmt::format("id {} for position {} of request {}", id, p, r),
                         fmt::format("whole manager blocks of {} kernel blocks", ratio_));
    }
    return static_cast<std::int32_t>(first / ratio_);
  }
  std::int32_t claim(std::int32_t id, bool is_written) {
    const auto [owner, is_first] = written_.emplace(id, is_written);
    if (!is_first && (is_written || owner->second))
      throw InputError("block_table", fmt::format("block {} twice", id),
                       "blocks of one request only, where the call writes");
    return is_first ? id : kAny;
  }
  std::int32_t next_free() {
    while (written_.contains(next_)) ++next_;
    return next_++;
  }

  const LayerSpec& spec_;
  const TensorView& table_;
  int ratio_;
  std::map<std::int32_t, bool> written_;  // blocks that have their owner
  std::int32_t next_ = 0;
};

// New tokens go where the block table says; whether the slots of padding rows are there too.
bool has_padded_slots(const LayerSpec& spec, const BlockTables& tables,
                      const CommonAttentionMetadata& batch, const Call& to) {
  const TensorView& slots = tables.slot_mapping;
  const std::int64_t live = batch.num_actual_tokens, count = slots.size(0);
  const auto expect = [&](std::int64_t i, std::int64_t expected) {
    const std::int64_t given = std::max<std::int64_t>(slots.data_as<const std::int64_t>()[i], -1);
    if (given != expected)
      throw InputError("slot_mapping", fmt::format("{} of token {}", given, i),
                       fmt::format("{}, where the block table has it", expected));
  };
  if (count != live && count != live + to.padding_rows)
    refuse("slot_mapping", slots,
           fmt::format("{} slots, or {} with those of padding rows", live, live + to.padding_rows));
  const std::int64_t size = spec.kernel_block_size.tokens;
  std::int64_t token = 0;
  for (std::size_t r = 0; r < to.problem.requests.size(); ++r) {
    const Request& request = to.problem.requests[r];
    for (std::int64_t p = request.kv_len - request.query_len; p < request.kv_len; ++p)
      expect(token++, p < 0
                          ? -1
                          : at(tables.block_table, static_cast<std::int64_t>(r), p / size) * size +
                                p % size);
  }
  for (; token < count; ++token) expect(token, -1);
  return to.padding_rows > 0 && count > live;
}
}  // namespace

int first_seen(const LayerSpec& spec, const Request& request, bool causal) {
  if (request.query_len == 0) return request.kv_len;
  const int first_query = request.kv_len - request.query_len;
  const Visible seen = visible(window_mask(spec.sliding_window),
                               {.kv_len = request.kv_len, .causal = causal}, first_query);
  return std::min(seen.main.begin, std::max(first_query, 0));
}

void check_tensors(const LayerSpec& spec, const CommonAttentionMetadata& batch,
                   const LayerCall& call) {
  const auto check_host = [](std::string_view name, const TensorView& t) {
    if (t.device().type != DeviceType::kCpu) refuse(name, t, "a tensor in host memory");
  };
  check_host("seq_lens", batch.seq_lens);
  fovea::check(batch);
  for (const Tensor& t : tensors_of(spec, call)) {
    check_host(t.name, t.view);
    if (t.view.ndim() == 0 && (t.name == "k" || t.name == "v"))
      throw InputError(t.name, "not given", "new keys and values: a call without is no call file");
    if (t.view.ndim() == 2) {
      check_shape(t.name, t.view, t.dtype, {-1, std::int64_t{t.heads} * t.size});
    } else {
      check_shape(t.name, t.view, t.dtype, {-1, t.heads, t.size});
    }
    if (t.view.size(0) < batch.num_actual_tokens)
      refuse(t.name, t.view, fmt::format("at least {} rows", batch.num_actual_tokens));
  }
  const std::int64_t size = spec.kernel_block_size.tokens;
  const DType cached = *plain_dtype(*spec.kv_dtype);
  check_host("cache.keys", call.cache.keys);
  check_host("cache.values", call.cache.values);
  if (call.cache.block_size != spec.kernel_block_size)
    throw InputError("cache", fmt::format("kernel blocks of {}", call.cache.block_size.tokens),
                     fmt::format("{}, as the layer says", size));
  check_shape("cache.keys", call.cache.keys, cached, {-1, size, spec.num_kv_heads, spec.head_size});
  check_shape("cache.values", call.cache.values, cached,
              {call.cache.keys.size(0), size, spec.num_kv_heads, spec.head_size_v});
  check_host("block_table", call.tables.block_table);
  check_table(call.tables.block_table, batch, call.cache);
  check_host("slot_mapping", call.tables.slot_mapping);
  check_shape("slot_mapping", call.tables.slot_mapping, DType::kI64, {-1});
  if (call.lse == nullptr) return;
  check_host("lse", call.lse->data);
  check_shape("lse", call.lse->data, DType::kF32, {-1, -1});
}

void record_placement(const LayerSpec& spec, const CommonAttentionMetadata& batch,
                      const LayerCall& call, Call& to) {
  const std::array<Tensor, 4> tensors = tensors_of(spec, call);
  const std::int64_t rows = call.out.size(0);
  for (const Tensor& t : tensors) {
    if (t.view.size(0) != rows) refuse(t.name, t.view, fmt::format("{} rows, as out has", rows));
    to.strides.*t.strides = strides_of(t, rows);
  }
  to.flat = std::ranges::all_of(tensors, [](const Tensor& t) { return t.view.ndim() == 2; });
  const std::int64_t padding = rows - batch.num_actual_tokens;
  if (!std::in_range<int>(padding)) refuse("out", call.out, "fewer rows");
  to.padding_rows = static_cast<int>(padding);
  if (call.lse != nullptr) to.strides.lse = stride_of(*call.lse, spec.num_heads, rows);

  const int ratio = kernel_blocks_per_manager_block(spec.block_size, spec.kernel_block_size);
  to.block_size = spec.kernel_block_size.tokens;
  to.kernel_blocks_per_manager_block = ratio;
  if (call.cache.keys.size(0) % ratio != 0)
    refuse("cache.keys", call.cache.keys, fmt::format("a multiple of {} kernel blocks", ratio));
  Cache(spec, call.cache, ratio).find(to);
  to.padded_slots = has_padded_slots(spec, call.tables, batch, to);
  if (batch.num_reqs == 0) return;
  to.num_blocks = call.cache.keys.size(0) / ratio;
  Blocks(spec, call.tables.block_table, ratio).find(to);
}

}  // namespace fovea::conformance
