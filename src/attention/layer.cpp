// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "attention/block_table_check.h"
#include "attention/capability_text.h"
#include "attention/tensor_checks.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

constexpr std::uintptr_t kWorkspaceAlignment = 64;

[[noreturn]] void refuse(ConfigError::Kind kind, std::string_view backend,
                         std::vector<Reason> reasons) {
  for (Reason& r : reasons) {
    if (r.phrase.empty()) r.phrase = r.field;
    r.phrase = fmt::format("{}: {}", backend, r.phrase);
  }
  throw ConfigError(kind, std::move(reasons));
}

// Rows that work on blocks of exactly this size.
Rows rows_with_block_size(const Rows& rows, int tokens) {
  Rows fitting;
  for (const Row& row : rows)
    if (admits(row.block_sizes, tokens)) fitting.push_back(row);
  return fitting;
}

struct Plan {
  KernelBlockSize block_size = {};
  bool writes_cache = true;
};

// The kernel block size and who writes the cache. A size that the caller named is taken or refused;
// otherwise it is the largest divisor of the manager's that the backend's rows serve.
Plan plan_layer(const LayerSpec& spec, const AttentionBackend& backend, const Device& device,
                bool block_size_is_given) {
  const Problem problem = problem_of(spec);
  Support support = validate(backend.rows(), problem, device);
  if (!support) refuse(ConfigError::Kind::kUnsupported, backend.name(), std::move(support.reasons));
  const int manager = spec.block_size.tokens;
  for (int parts = 1; parts <= manager; ++parts) {
    if (manager % parts != 0) continue;
    const int tokens = manager / parts;
    if (block_size_is_given && tokens != spec.kernel_block_size.tokens) continue;
    const Rows rows = rows_with_block_size(backend.rows(), tokens);
    if (!validate(rows, problem, device)) continue;
    const std::vector<const Row*> best = admitting(rows, problem, device);
    for (const Row* row : best) {
      if (row->forward_includes_kv_cache_update != best[0]->forward_includes_kv_cache_update)
        throw ContractError(
            fmt::format("rows of backend {} disagree about who writes the cache", backend.name()));
    }
    return {{tokens}, best.empty() || !best[0]->forward_includes_kv_cache_update};
  }
  const Need need{Need::What::kBlockSize};
  refuse(ConfigError::Kind::kUnsupported, backend.name(),
         {reason_of(need, backend.rows(), {problem, device, BlockRule::kDivides})});
}

std::string text_of(const PlanKey& k) {
  if (k.backend.empty()) return "a plan that was not built";
  return fmt::format(
      "a plan for {} with heads {}/{} of {}/{}, kv_dtype {}, blocks of {}, window ({}, {})",
      k.backend, k.num_heads, k.num_kv_heads, k.head_size, k.head_size_v, name_of(k.kv_dtype),
      k.block_size.tokens, k.mask.left, k.mask.right);
}

void check_cache(const KVCacheView& cache, const LayerSpec& spec) {
  const int bs = spec.kernel_block_size.tokens;
  if (cache.block_size != spec.kernel_block_size) {
    throw InputError("cache", fmt::format("kernel blocks of {} tokens", cache.block_size.tokens),
                     fmt::format("{} tokens, as layer '{}' says", bs, spec.name));
  }
  const std::optional<DType> dtype = plain_dtype(*spec.kv_dtype);
  if (!dtype) {
    throw InputError("cache", fmt::format("kv_dtype {}", name_of(*spec.kv_dtype)),
                     "a format that stores elements as they are");
  }
  const std::array dtypes = {*dtype};
  const std::array<std::int64_t, 4> k = {-1, bs, spec.num_kv_heads, spec.head_size};
  check_tensor(cache.keys, {.argument = "cache.keys", .dtypes = dtypes, .shape = k});
  const std::array<std::int64_t, 4> v = {cache.keys.size(0), bs, spec.num_kv_heads,
                                         spec.head_size_v};
  check_tensor(cache.values, {.argument = "cache.values", .dtypes = dtypes, .shape = v});
  if (cache.values.data() == cache.keys.data() && cache.keys.size(0) > 0)
    throw InputError("cache.values", "the memory of cache.keys", "memory of its own");
  check_writable(cache.keys, "cache.keys");
  check_writable(cache.values, "cache.values");
}

void check_table(const BlockTables& tables, const AttentionMetadata& metadata,
                 const KVCacheView& cache) {
  if (metadata.num_reqs == 0) return;
  if (std::cmp_not_equal(metadata.seq_lens_cpu.size(), metadata.num_reqs))
    throw ContractError("a plan in host memory without the lengths of its requests");
  const std::array dtypes = {DType::kI32};
  const std::array<std::int64_t, 2> shape = {-1, -1};
  check_tensor(tables.block_table, {.argument = "block_table", .dtypes = dtypes, .shape = shape});
  if (tables.block_table.size(0) < metadata.num_reqs) {
    throw InputError("block_table", describe(tables.block_table),
                     fmt::format("at least {} rows, one a request", metadata.num_reqs));
  }
  check_block_table(tables.block_table, metadata.num_reqs, metadata.seq_lens_cpu, cache);
}

void check_workspace(const TensorView& workspace, std::size_t bytes) {
  if (bytes == 0 && workspace.ndim() == 0) return;
  const std::array dtypes = {DType::kU8};
  const std::array<std::int64_t, 1> shape = {-1};
  check_tensor(workspace, {.argument = "workspace", .dtypes = dtypes, .shape = shape});
  if (std::cmp_less(workspace.size(0), bytes)) {
    throw InputError("workspace", fmt::format("{} bytes", workspace.size(0)),
                     fmt::format("at least {} bytes", bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0) {
    throw InputError("workspace", fmt::format("memory at {}", fmt::ptr(workspace.data())),
                     fmt::format("memory aligned to {} bytes", kWorkspaceAlignment));
  }
}

// New keys and values in three dimensions. Without dimensions: nothing to write.
struct NewTokens {
  TensorView k = {}, v = {};
};
NewTokens new_tokens(const LayerCall& call, const LayerSpec& spec) {
  if (call.k.ndim() == 0 && call.v.ndim() == 0) return {};
  const std::array dtypes = {DType::kI64};
  const std::array<std::int64_t, 1> shape = {-1};
  check_tensor(call.tables.slot_mapping,
               {.argument = "slot_mapping", .dtypes = dtypes, .shape = shape});
  const std::int64_t slots = call.tables.slot_mapping.size(0);
  NewTokens tokens;
  tokens.k = heads_view(call.k, {"k", spec.dtype, slots, spec.num_kv_heads, spec.head_size});
  tokens.v = heads_view(call.v, {"v", spec.dtype, slots, spec.num_kv_heads, spec.head_size_v});
  return tokens;
}

// Rows from `begin` on become 0. `out` has three dimensions, the last one dense.
void clear_rows(const TensorView& out, std::int64_t begin) {
  const auto size = static_cast<std::int64_t>(size_of(out.dtype()));
  const auto bytes = static_cast<std::size_t>(out.size(2) * size);
  for (std::int64_t t = begin; t < out.size(0); ++t) {
    for (std::int64_t h = 0; h < out.size(1); ++h)
      std::memset(out.data_as<std::byte>() + (t * out.stride(0) + h * out.stride(1)) * size, 0,
                  bytes);
  }
}

void clear_rows(const Lse& lse, std::int64_t begin, int num_heads) {
  const std::int64_t end = num_tokens_of(lse);
  for (std::int64_t t = begin; t < end; ++t) {
    for (int h = 0; h < num_heads; ++h)
      lse.at(static_cast<int>(t), h) = -std::numeric_limits<float>::infinity();
  }
}

void check_outputs(const LayerCall& call, const LayerSpec& spec, const TensorView& out,
                   std::int64_t num_tokens) {
  check_writable(out, "out");
  if (call.lse == nullptr) return;
  if (!spec.return_lse) {
    throw InputError("lse", describe(call.lse->data),
                     fmt::format("none: return_lse of layer '{}' is off", spec.name));
  }
  check_lse(*call.lse, "lse", spec.num_heads, num_tokens);
  check_writable(call.lse->data, "lse");
}

// What is written must not be what is still to be read. Keys and values of the step are read before
// anything but the cache is written.
void check_memory(const LayerCall& call) {
  const NamedView q{"q", call.q}, keys{"cache.keys", call.cache.keys},
      values{"cache.values", call.cache.values}, table{"block_table", call.tables.block_table},
      workspace{"workspace", call.workspace}, out{"out", call.out};
  for (const NamedView& cache : {keys, values})
    check_apart(
        cache,
        {q, table, {"k", call.k}, {"v", call.v}, {"slot_mapping", call.tables.slot_mapping}});
  check_apart(workspace, {q, table, keys, values});
  check_apart(out, {q, table, keys, values, workspace});
  if (call.lse != nullptr)
    check_apart({"lse", call.lse->data}, {q, table, keys, values, workspace, out});
}

}  // namespace

AttentionLayer::AttentionLayer(const LayerSpec& spec, const AttentionBackend& backend,
                               const Device& device, const Context& context)
    : spec_(complete(spec)), backend_(&backend) {
  const Plan plan = plan_layer(spec_, backend, device, spec.kernel_block_size.tokens != 0);
  if (device.id.type != DeviceType::kCpu) {
    refuse(ConfigError::Kind::kNotImplemented, backend.name(),
           {{"device", name_of(device), "cpu", "make the layer for Device::host()",
             "layers on this device not supported"}});
  }
  spec_.kernel_block_size = plan.block_size;
  writes_cache_ = plan.writes_cache;
  impl_ = backend.make_impl(spec_, context);
  if (impl_ == nullptr)
    throw ContractError(fmt::format("backend {} made no implementation", backend.name()));
}

void AttentionLayer::forward(const AttentionMetadata* metadata, const LayerCall& call,
                             Stream& stream) const {
  if (stream.device.type != DeviceType::kCpu)
    throw InputError("stream", "a stream of a GPU", "one of the CPU, as the layer's device is");
  const std::int64_t num_tokens = metadata == nullptr ? 0 : metadata->num_actual_tokens;
  const TensorView out = heads_view(
      call.out, {"out", *spec_.output_dtype, num_tokens, spec_.num_heads, spec_.head_size_v});
  check_outputs(call, spec_, out, num_tokens);
  if (metadata != nullptr) {
    const PlanKey key = plan_key();
    if (metadata->key != key) throw InputError("metadata", text_of(metadata->key), text_of(key));
    if (metadata->num_reqs < 0)
      throw InputError("metadata", "a plan that was never built", "one that build() has filled");
    if (!metadata->causal && !spec_.non_causal)
      throw InputError("metadata", "a batch with causal = false",
                       fmt::format("causal: non_causal of layer '{}' is off", spec_.name));
    const TensorView q =
        heads_view(call.q, {"q", spec_.dtype, num_tokens, spec_.num_heads, spec_.head_size});
    check_cache(call.cache, spec_);
    check_table(call.tables, *metadata, call.cache);
    const NewTokens tokens = new_tokens(call, spec_);
    check_workspace(call.workspace, metadata->workspace_bytes);
    check_memory(call);
    if (writes_cache_ && tokens.k.ndim() != 0 && call.tables.slot_mapping.size(0) > 0)
      kv::append({call.cache, tokens.k, tokens.v, call.tables.slot_mapping}, stream);
    impl_->forward(*metadata,
                   {.q = q,
                    .cache = call.cache,
                    .tables = call.tables,
                    .out = out,
                    .lse = call.lse,
                    .workspace = call.workspace,
                    .k = tokens.k,
                    .v = tokens.v},
                   stream);
  }
  clear_rows(out, num_tokens);
  if (call.lse != nullptr) clear_rows(*call.lse, num_tokens, spec_.num_heads);
}

}  // namespace fovea
