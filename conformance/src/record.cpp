// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_words.h"
#include "fovea/base/error.h"
#include "number.h"
#include "record_placement.h"

namespace fovea::conformance {

namespace {
std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Element 0 of a head of a row of a tensor with three dimensions, or of two whose heads are flat.
const std::byte* row_of(const TensorView& t, std::int64_t token, int head, int size) {
  const std::int64_t of_head = t.ndim() == 3 ? t.stride(1) : size;
  const std::int64_t element = token * t.stride(0) + head * of_head;
  return t.data_as<const std::byte>() + element * static_cast<std::int64_t>(size_of(t.dtype()));
}

void append_row(std::vector<double>& to, const std::byte* from, DType dtype, int size) {
  for (int e = 0; e < size; ++e) to.push_back(load(dtype, from + index(e) * size_of(dtype)));
}

class Recorder {
 public:
  Recorder(const AttentionLayer& layer, const CommonAttentionMetadata& batch, const LayerCall& call)
      : spec_(layer.spec()), batch_(batch), call_(call) {}

  Call take() {
    Call out = options();
    check_tensors(spec_, batch_, call_);
    for (int r = 0; r < batch_.num_reqs; ++r) out.problem.requests.push_back(request_of(r));
    record_placement(spec_, batch_, call_, out);
    check_size(out);
    Explicit q, k, v;
    for (int r = 0; r < batch_.num_reqs; ++r) {
      const Request& request = out.problem.requests[index(r)];
      q.requests.push_back(queries(r, request));
      k.requests.push_back(
          tokens(r, request, {"cache.keys", call_.cache.keys, call_.k, spec_.head_size}));
      v.requests.push_back(
          tokens(r, request, {"cache.values", call_.cache.values, call_.v, spec_.head_size_v}));
    }
    out.q = std::move(q);
    out.k = std::move(k);
    out.v = std::move(v);
    check(out);
    return out;
  }

 private:
  // What the layer is. What a call has no word for would be another layer when it is replayed.
  Call options() const {
    if (spec_.attn_type != AttentionType::kDecoder)
      throw InputError("attn_type", name_of(spec_.attn_type), name_of(AttentionType::kDecoder));
    const std::optional<DType> cache = plain_dtype(*spec_.kv_dtype);
    if (!cache)
      throw InputError("cache", name_of(*spec_.kv_dtype),
                       "a format that stores elements as they are");
    for (const DType dtype : {spec_.dtype, *spec_.output_dtype, *cache}) {
      if (word_of(dtype).empty()) throw InputError("dtype", name_of(dtype), "f32, f16 or bf16");
    }
    Call out;
    Case& c = out.problem;
    c.num_heads = spec_.num_heads;
    c.num_kv_heads = spec_.num_kv_heads;
    c.head_size = spec_.head_size;
    c.head_size_v = spec_.head_size_v;
    c.scale = spec_.scale;
    c.soft_cap = spec_.logits_soft_cap;
    c.window = spec_.sliding_window;
    c.causal = batch_.causal;
    c.dtype = spec_.dtype;
    c.kv_dtype = *cache;
    c.out_dtype = *spec_.output_dtype;
    out.non_causal = spec_.non_causal;
    out.return_lse = spec_.return_lse;
    if (call_.lse != nullptr) {
      out.lse_base = call_.lse->base;
      out.lse_layout = call_.lse->layout;
    }
    return out;
  }

  // A pool that takes more memory than a call may is one of which only what is touched does.
  static void check_size(Call& out) {
    try {
      check(out);
    } catch (const InputError&) {
      out.lazy_memory = true;
      check(out);
    }
  }

  Request request_of(int r) const {
    const std::span<const int> starts = batch_.query_start_loc_cpu;
    return {starts[index(r) + 1] - starts[index(r)], batch_.seq_lens.data_as<const int>()[r]};
  }

  std::vector<double> queries(int r, const Request& request) const {
    std::vector<double> all;
    const int first = batch_.query_start_loc_cpu[index(r)];
    for (int t = first; t < first + request.query_len; ++t) {
      for (int h = 0; h < spec_.num_heads; ++h)
        append_row(all, row_of(call_.q, t, h, spec_.head_size), spec_.dtype, spec_.head_size);
    }
    return all;
  }

  // Keys or values.
  struct Source {
    const char* name;
    const TensorView& cache;
    const TensorView& fresh;
    int size;
  };
  // Those of every position: cached ones, then those of the step.
  std::vector<double> tokens(int r, const Request& request, const Source& from) const {
    std::vector<double> all;
    const int first_new = std::max(request.kv_len - request.query_len, 0);
    const int seen = first_seen(spec_, request, batch_.causal);
    for (int p = 0; p < request.kv_len; ++p) {
      for (int h = 0; h < spec_.num_kv_heads; ++h) {
        if (p >= first_new) {
          const int row = batch_.query_start_loc_cpu[index(r) + 1] - (request.kv_len - p);
          append_row(all, row_of(from.fresh, row, h, from.size), spec_.dtype, from.size);
        } else if (p < seen) {
          all.insert(all.end(), index(from.size), 0.0);
        } else {
          append_row(all, cell(from.cache, r, p, h), from.cache.dtype(), from.size);
          check_cached(all, from);
        }
      }
    }
    return all;
  }

  // A call's cached numbers are of the layer's type, as new ones are.
  void check_cached(const std::vector<double>& all, const Source& from) const {
    for (auto x = all.end() - from.size; x != all.end(); ++x) {
      if (round_to(from.cache.dtype(), round_to(spec_.dtype, *x)) != *x)
        throw InputError(from.name, fmt::format("{}", *x),
                         fmt::format("finite numbers of {}", name_of(spec_.dtype)));
    }
  }

  const std::byte* cell(const TensorView& cache, int r, int position, int head) const {
    const TensorView& table = call_.tables.block_table;
    const int size = call_.cache.block_size.tokens;
    const std::int64_t block =
        table
            .data_as<const std::int32_t>()[r * table.stride(0) + position / size * table.stride(1)];
    const std::int64_t element =
        block * cache.stride(0) + position % size * cache.stride(1) + head * cache.stride(2);
    return cache.data_as<const std::byte>() +
           element * static_cast<std::int64_t>(size_of(cache.dtype()));
  }

  const LayerSpec& spec_;
  const CommonAttentionMetadata& batch_;
  const LayerCall& call_;
};
}  // namespace

Call record_call(const AttentionLayer& layer, const CommonAttentionMetadata& batch,
                 const LayerCall& call) {
  return Recorder(layer, batch, call).take();
}

}  // namespace fovea::conformance
