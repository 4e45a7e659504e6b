// SPDX-License-Identifier: Apache-2.0
// What a layer keeps in the cache: a token format (what one token occupies) times a retention
// (which tokens must stay). Both are closed sets: a new alternative does not compile until every
// function below handles it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "fovea/base/dtype.h"
#include "fovea/base/error.h"

namespace fovea {

// Index of a block in the pool. Signed, as the block tables of kernels are.
using BlockId = std::int32_t;

// Tokens per block, as the pool hands them out and as a kernel addresses them. One manager block is
// a whole number of kernel blocks; the two never convert silently.
struct ManagerBlockSize {
  int tokens = 0;
  friend bool operator==(ManagerBlockSize, ManagerBlockSize) = default;
};
struct KernelBlockSize {
  int tokens = 0;
  friend bool operator==(KernelBlockSize, KernelBlockSize) = default;
};
// Kernel blocks in one manager block; throws ConfigError unless the division is exact and both are
// positive (5.2).
int kernel_blocks_per_manager_block(ManagerBlockSize manager, KernelBlockSize kernel);

// Storage formats of K and V in the cache (specification 2.3, 5.6).
enum class KVDType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kFp8E4M3,
  kFp8E5M2,
  kInt8PerTokenHead,
  kFp8PerTokenHead,
  kInt4PerTokenHead,
  kNvfp4,
  kNvfp4FourOverSix,
  kFp8DsMla,
};
// f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8_per_token_head, …
std::string_view name_of(KVDType t);
// The format that stores a plain element type as it is; throws ConfigError for a type that no
// format stores.
KVDType plain_kv_dtype(DType t);
// The element type of a plain format; none for a quantised one.
std::optional<DType> plain_dtype(KVDType t);
// Accepts the strings of 2.3 and the program's short words; `auto` is the model's type. Throws
// ConfigError that lists the accepted words; for a format that is left out on purpose (fp8_inc,
// turboquant_*, …) it says so by name.
KVDType parse_kv_dtype(std::string_view word, DType model_dtype);

// K and V of each head side by side: the ordinary cache of MHA, GQA and MQA.
struct SplitKV {
  int num_kv_heads = 0, head_size = 0, head_size_v = 0;
  KVDType dtype = KVDType::kF32;
  bool operator==(const SplitKV&) const = default;
};
using TokenFormat = std::variant<SplitKV>;

// Every token stays until the request ends. A window here masks but frees nothing.
struct KeepAll {
  int sliding_window = 0;
  bool operator==(const KeepAll&) const = default;
};
// Only the last `tokens` (the current one included) can be seen again.
struct KeepWindow {
  int tokens = 0;
  bool operator==(const KeepWindow&) const = default;
};
using Retention = std::variant<KeepAll, KeepWindow>;

struct KVCacheSpec {
  TokenFormat format = {};
  Retention retention = {};
  ManagerBlockSize block_size = {};
  std::int64_t page_size_padded = 0;  // bytes; 0: none
  bool operator==(const KVCacheSpec&) const = default;
};

// "full_attention" or "sliding_window" (6.3).
std::string_view kind_of(const KVCacheSpec& spec);
// Bytes of one token of one head: K then V (5.7). Throws ConfigError if the head size does not fit
// the format.
std::int64_t content_bytes(const SplitKV& format);
// Bytes of K alone at the start of these.
std::int64_t key_bytes(const SplitKV& format);
// Bytes of one manager block of one layer (5.7); throws ConfigError if page_size_padded is smaller
// than the content.
std::int64_t page_size_bytes(const KVCacheSpec& spec);
// Bytes that one token of one layer occupies, the share of padding not counted.
std::int64_t bytes_per_token(const KVCacheSpec& spec);

// Limits of a run, known when memory is planned.
struct Bounds {
  int max_num_reqs = 0;       // requests in one step
  int max_num_tokens = 0;     // query tokens in one step
  int max_model_len = 0;      // tokens of one request, prompt and generated
  int block_table_width = 0;  // columns of a block table (5.1); 0: from max_model_len
};
// Bytes that one request can need at most in one layer (6.3).
std::int64_t max_memory_usage_bytes(const KVCacheSpec& spec, const Bounds& bounds);
// Leading tokens that no future query can see, after `computed` tokens are final (6.6). Blocks
// wholly below may be freed.
std::int64_t skippable_tokens(const KVCacheSpec& spec, std::int64_t computed);
// The spec that layers of one group share, or why they cannot (6.4).
struct MergedSpec {
  std::optional<KVCacheSpec> spec = {};
  Reason reason = {};
};
MergedSpec merge_specs(std::span<const KVCacheSpec> specs);

}  // namespace fovea
