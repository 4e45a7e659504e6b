// SPDX-License-Identifier: Apache-2.0
// What a backend can do, as rows of data. The same rows are its support table, its dispatch table
// and its test list.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/base/device.h"
#include "fovea/base/dtype.h"
#include "fovea/base/error.h"
#include "fovea/base/flag_set.h"
#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"

namespace fovea {

enum class AttentionType : std::uint8_t { kDecoder, kEncoder, kEncoderOnly, kEncoderDecoder };
std::string_view name_of(AttentionType t);

// Everything optional. The answer is "no" until a row says yes. Order: that of the reasons (9.3,
// then 9.9).
enum class Feature : std::uint8_t {
  kMmPrefix,
  kSinks,
  kPerHeadScales,
  kSlidingWindow,
  kRswa,
  kNonCausal,
  kBatchInvariance,
  kKVConnector,
  kPcp,
  kDcp,
  kQueryLenMismatch,
  kSoftCap,
  kAlibi,
  kAlibiSqrt,
  kAdditiveBias,
  kTreeMask,
  kBitmapMask,
  kChunkedLocal,
  kLse,
};
inline constexpr int kNumFeatures = static_cast<int>(Feature::kLse) + 1;
std::string_view name_of(Feature f);  // "sliding_window"
std::string_view refusal_text(
    Feature f);  // "sliding window not supported": the words of 9.3 and 9.9

struct Range {
  int min = 0, max = INT_MAX;
  bool operator==(const Range&) const = default;
};  // both inclusive
// base · n in [min, max]: exactly 64 is {64, 64, 64}, multiples of 16 {16, 16}, "multiples of 8 to
// 256" {8, 8, 256}.
struct Multiples {
  int base = 1, min = 1, max = INT_MAX;
  bool operator==(const Multiples&) const = default;
};
using Sizes = std::vector<Multiples>;  // a union; empty admits nothing
bool admits(const Sizes& sizes, int value);

// Everything that a layer asks for; the only input of selection.
struct Problem {
  int num_heads = 0, num_kv_heads = 0, head_size = 0, head_size_v = 0;
  DType dtype = {}, output_dtype = {};
  KVDType kv_dtype = {};
  AttentionType attn_type = {};
  FlagSet<Feature> features = {};
  Range query_len = {1, INT_MAX};          // query lengths of live requests that the layer will see
  KernelBlockSize block_size = {};         // 0: not decided yet
  std::optional<CacheLayout> layout = {};  // none: not decided yet
};

enum class Field : std::uint8_t {
  kHeadSize,
  kHeadSizeV,
  kDType,
  kKVDType,
  kBlockSize,
  kGroupSize,
  kAttnType,
  kQueryLen,
  kFeature,
  kComputeCapability,
};
// The field's value lies in the range; enumerations count by their number, a feature is 0 or 1,
// sm_90 is 90. The field has no default: one that is forgotten is a warning.
struct Term {  // NOLINT(cppcoreguidelines-pro-type-member-init)
  Field field;
  Range in = {1, 1};
  Feature feature = {};
};
// All terms true: refused.
struct Exclusion {
  std::vector<Term> all_of;
  std::string_view why;
};

enum class GraphSupport : std::uint8_t {
  kNever,
  kUniformSingleTokenDecode,
  kUniformBatch,
  kAlways
};
std::string_view name_of(GraphSupport g);

struct DeviceRange {
  DeviceType type = DeviceType::kCpu;
  CpuLevel min_level = CpuLevel::kPortable;  // CPUs
  Range compute_capability = {};             // GPUs: 80 to 89 is {80, 89}
};

// One supported box; a backend supports the union of its rows.
struct Row {
  std::string_view name = {};  // tells the rows of one backend apart
  FlagSet<DType> dtypes = {};
  FlagSet<DType> output_dtypes = {};  // besides the query's own
  FlagSet<KVDType> kv_dtypes = {};
  Sizes head_sizes = {{}}, head_sizes_v = {};    // v empty: equal to head_size
  Sizes group_sizes = {{}}, block_sizes = {{}};  // num_heads / num_kv_heads; kernel blocks
  FlagSet<AttentionType> attn_types = {AttentionType::kDecoder};
  FlagSet<Feature> features = {};
  std::vector<CacheLayout> layouts = {CacheLayout::kLBNHC};  // most preferred first (5.4)
  Range query_len = {};  // a backend's rows together must cover Problem::query_len
  DeviceRange devices = {};
  GraphSupport graphs = GraphSupport::kNever;
  int reorder_batch_threshold = 0;  // 0: none wanted
  bool forward_includes_kv_cache_update = false;
  std::vector<Exclusion> exclusions = {};
  int rank = 0;  // higher is tried first; ties go by name
};
using Rows = std::vector<Row>;

// How a wished block size relates to a row's (9.2): a divisor of it is in the row, or it is itself.
enum class BlockRule : std::uint8_t { kDivides, kExact };

// All reasons against a problem, in the order of 9.3 and 9.9: one for each field that no row
// offers; if each is offered but not together, one reason from the closest row; last, query lengths
// that the admitting rows leave open.
Support validate(const Rows& rows, const Problem& problem, const Device& device,
                 BlockRule rule = BlockRule::kDivides);
// Rows that admit the problem, by falling rank; of its query lengths, a row has at least one.
std::vector<const Row*> admitting(const Rows& rows, const Problem& problem, const Device& device,
                                  BlockRule rule = BlockRule::kDivides);

}  // namespace fovea
