// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/base/error.h"
#include "number.h"

namespace fovea::conformance {

namespace {
std::size_t index(int i) { return static_cast<std::size_t>(i); }

void check_host(const TensorView& t, std::string_view name) {
  if (t.device().type != DeviceType::kCpu)
    throw InputError(name, describe(t), "a tensor in host memory");
}

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
    for (const auto& [name, tensor] : {std::pair<std::string_view, const TensorView&>{"q", call_.q},
                                       {"k", call_.k},
                                       {"v", call_.v},
                                       {"cache.keys", call_.cache.keys},
                                       {"block_table", call_.tables.block_table},
                                       {"seq_lens", batch_.seq_lens}})
      check_host(tensor, name);
    Call out = options();
    Explicit q, k, v;
    for (int r = 0; r < batch_.num_reqs; ++r) {
      const Request request = request_of(r);
      out.problem.requests.push_back(request);
      q.requests.push_back(queries(r, request));
      k.requests.push_back(tokens(r, request, call_.cache.keys, call_.k, spec_.head_size));
      v.requests.push_back(tokens(r, request, call_.cache.values, call_.v, spec_.head_size_v));
    }
    out.q = std::move(q);
    out.k = std::move(k);
    out.v = std::move(v);
    return out;
  }

 private:
  Call options() const {
    const std::optional<DType> cache = plain_dtype(*spec_.kv_dtype);
    if (!cache)
      throw InputError("cache", name_of(*spec_.kv_dtype),
                       "a format that stores elements as they are");
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
    out.return_lse = call_.lse != nullptr;
    if (call_.lse != nullptr) {
      out.lse_base = call_.lse->base;
      out.lse_layout = call_.lse->layout;
    }
    out.block_size = spec_.kernel_block_size.tokens;
    if (spec_.layout) out.layout = *spec_.layout;
    return out;
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

  // Keys or values of every position: cached ones, then those of the step.
  std::vector<double> tokens(int r, const Request& request, const TensorView& cache,
                             const TensorView& fresh, int size) const {
    std::vector<double> all;
    const int first_new = std::max(request.kv_len - request.query_len, 0);
    const Visible seen = visible(window_mask(spec_.sliding_window),
                                 {.kv_len = request.kv_len, .causal = batch_.causal},
                                 request.kv_len - request.query_len);
    for (int p = 0; p < request.kv_len; ++p) {
      for (int h = 0; h < spec_.num_kv_heads; ++h) {
        if (p >= first_new) {
          const int row = batch_.query_start_loc_cpu[index(r) + 1] - (request.kv_len - p);
          append_row(all, row_of(fresh, row, h, size), spec_.dtype, size);
        } else if (p < seen.main.begin || request.query_len == 0) {
          all.insert(all.end(), index(size), 0.0);
        } else {
          append_row(all, cell(cache, r, p, h), cache.dtype(), size);
        }
      }
    }
    return all;
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
