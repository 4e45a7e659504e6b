// SPDX-License-Identifier: Apache-2.0
// One attention call, or several over one cache, as a value: what is asked, where everything lies,
// where the numbers come from, what is poison. docs/call_file.md is the same as a file.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "fovea/attention/layer.h"
#include "fovea/attention/partial_state.h"
#include "fovea/base/dtype.h"
#include "fovea/base/flag_set.h"
#include "fovea/kv/layout.h"

namespace fovea::conformance {

// Query i of a request stands at position kv_len - query_len + i; kv_len counts the new tokens.
struct Request {
  int query_len = 0, kv_len = 0;
  bool operator==(const Request&) const = default;
};

// What is to be computed, without where anything lies.
struct Case {
  std::vector<Request> requests = {};
  int num_heads = 1, num_kv_heads = 1;
  int head_size = 8, head_size_v = 8;
  float scale = 1, soft_cap = 0;  // 0: off
  int window = 0;                 // tokens, the current one included; 0: none
  bool causal = true;
  DType dtype = DType::kF32, kv_dtype = DType::kF32, out_dtype = DType::kF32;
  bool operator==(const Case&) const = default;
};

// Where the numbers of a tensor of one request come from, before they are rounded to the type that
// holds them. An element is (token, head, element), the last one fastest; a token of q is counted
// from the request's first query, one of k and v is its position.
struct Normal {  // standard normal numbers, the same from any program (docs/call_file.md)
  std::uint64_t seed = 0;
  bool operator==(const Normal&) const = default;
};
struct Constant {
  double value = 0;
  bool operator==(const Constant&) const = default;
};
struct Index {  // the number of the token
  bool operator==(const Index&) const = default;
};
struct Explicit {
  std::vector<std::vector<double>> requests = {};  // all elements of each request
  bool operator==(const Explicit&) const = default;
};
using Rule = std::variant<Normal, Constant, Index, Explicit>;

// Memory that a right call does not depend on. What is poisoned is NaN, and a number that no table
// may hold; what is not is 0.
enum class Poison : std::uint8_t {
  kUnowned,  // blocks that no request owns, and table entries behind those in use
  kTails,    // the last block of a request behind its last token
  kHidden,   // cached tokens that no query sees
  kPadding,  // rows of q, k and v behind the live tokens
};
inline constexpr int kNumPoisons = static_cast<int>(Poison::kPadding) + 1;
std::string_view name_of(Poison p);

// The tensor whose strides are not those of a dense array.
enum class Strided : std::uint8_t { kNone, kQ, kK, kV, kOut };
std::string_view name_of(Strided s);

struct Strides {
  std::int64_t token = 0, head = 0;  // elements from one to the next; 0: dense
  bool operator==(const Strides&) const = default;
};
struct TensorStrides {
  Strides q = {}, k = {}, v = {}, out = {};
  std::int64_t lse = 0;  // from one row of it to the next
  bool operator==(const TensorStrides&) const = default;
};

// How keys and values lie in the pool. kPaged: as the library lays them out. kPlanes: a block is a
// plane of keys and a plane of values. kSparseKeys: keys are every second row of their own buffer,
// values lie dense behind it.
enum class CacheForm : std::uint8_t { kPaged, kPlanes, kSparseKeys };
std::string_view name_of(CacheForm f);

// How a call must agree with others, which a seed makes from it.
enum class Relation : std::uint8_t {
  kNone,
  kTwice,   // the same call twice
  kPlaces,  // other physical blocks, another table
  kAlone,   // one of its requests alone
  kChunks,  // in several calls
  kBlockSize,
  kThreads,  // one, or two
  kOrder,    // before and after a call that differs in one thing
};
struct Origin {
  Relation relation = Relation::kNone;
  std::uint64_t seed = 0;
  bool operator==(const Origin&) const = default;
};

struct Call {
  Case problem = {};
  // The calls, one behind the other: of each request a part that ends where the next one goes on.
  // Empty: one call with everything.
  std::vector<std::vector<Request>> steps = {};
  Rule q = Normal{1}, k = Normal{1}, v = Normal{1};
  std::vector<int> streams = {};  // number of each request in Normal; empty: 0, 1, 2, …
  FlagSet<Poison> poison = {Poison::kUnowned, Poison::kTails, Poison::kHidden, Poison::kPadding};

  std::uint64_t seed = 0;  // of tables, garbage, positions in memory, and what is told of a batch
  int block_size = 16;     // of the kernel
  int kernel_blocks_per_manager_block = 1;
  CacheLayout layout = CacheLayout::kLBNHC;
  int num_layers = 1, layer = 0;
  CacheForm cache_form = CacheForm::kPaged;  // the others have one layer and ignore the layout
  Strided strided = Strided::kNone;
  bool head_major = false;        // the strided tensor's heads lie outside its tokens
  TensorStrides strides = {};     // of tensors whose strides say nothing else
  bool flat = false;              // tensors are [tokens, heads · size]
  int padding_rows = 0;           // behind the live tokens
  bool padded_slots = false;      // the slot mapping covers them, with -1
  bool block_zero_lives = false;  // block 0 holds data of a request
  bool non_causal = false;        // the layer's own promise; Case::causal is the batch's
  bool return_lse = true;
  LseBase lse_base = LseBase::kE;
  LseLayout lse_layout = LseLayout::kHeadsTokens;
  int num_workers = 1;
  // Manager blocks of each request, and of the pool; empty and 0: placed by `seed`, as many as are
  // needed and some more.
  std::vector<std::vector<std::int32_t>> blocks = {};
  std::int64_t num_blocks = 0;
  // For problems larger than memory: elements between two tokens of q, k, v and out (0: dense), and
  // pages that are committed when they are touched, without poison.
  std::int64_t token_stride = 0;
  bool lazy_memory = false;
  Origin origin = {};  // of a file that shows a difference
  bool operator==(const Call&) const = default;
};

// InputError with everything about a call that makes no sense by itself, whatever the backend.
void check(const Call& call);
std::string describe(const Call& call);  // one line, for messages
// The layer that the call asks for.
LayerSpec layer_spec(const Call& call);

}  // namespace fovea::conformance
