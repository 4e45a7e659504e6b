// SPDX-License-Identifier: Apache-2.0
// The interface of a backend: rows and two factories. Four virtual functions, and it stays at four;
// whatever else is asked of a backend is a field of its rows, of its builder's facts, or a free
// function over them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <typeinfo>

#include "fovea/attention/capability.h"
#include "fovea/attention/metadata.h"
#include "fovea/attention/partial_state.h"
#include "fovea/base/error.h"
#include "fovea/base/executor.h"
#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"

namespace fovea {

struct LayerSpec;  // layer.h

struct BuilderOptions {
  PlanKey key;    // of every layer that will use the plans
  Bounds bounds;  // no batch exceeds them; build() refuses one that does
};

// Hints: they may change how a step is computed, never what comes out.
struct BuildOptions {
  int common_prefix_len = 0;  // leading tokens that the tables of all requests share
  bool fast_build = false;    // prefer cheap planning over fast kernels
};

// What a builder promises, as data.
struct BuilderFacts {
  GraphSupport graphs = GraphSupport::kNever;
  int reorder_batch_threshold = 0;
  bool plan_holds_block_table = false;
  std::size_t workspace_bytes =
      0;  // scratch that forward() needs at most, from key, bounds and executor alone
};

// One per (cache group, plan key). Host only; never waits for a device. Const members may be called
// from many threads.
class AttentionMetadataBuilder {
 public:
  virtual ~AttentionMetadataBuilder() = default;
  // Room for one step's plan, at addresses that stay; one per step in flight.
  virtual std::unique_ptr<AttentionMetadata> allocate() const = 0;
  // Plans a step. No allocation. Checks the batch: InputError, and `out` is as before.
  virtual void build(const CommonAttentionMetadata& batch, const BuildOptions& options,
                     AttentionMetadata& out, Stream& stream) const = 0;
  const BuilderFacts& facts() const { return facts_; }

 protected:
  BuilderFacts facts_;  // set by the constructor
};

// One call of one layer. Views, not owned.
struct ForwardArgs {
  const TensorView& q;  // [>= num_actual_tokens, num_heads, head_size]
  const KVCacheView& cache;
  const BlockTables& tables;
  const TensorView& out;  // as q, with head_size_v; rows of the batch's requests are written, all
                          // others left alone
  const Lse* lse = nullptr;
  TensorView workspace =
      {};  // uint8 [>= facts().workspace_bytes], aligned to 64; one per call in flight
  // This step's keys and values, if the caller gave some; only an impl whose row says
  // forward_includes_kv_cache_update needs them.
  TensorView k = {}, v = {};
};

// One per layer; immutable after construction, so it may run in many threads at once (each with its
// own workspace).
class AttentionImpl {
 public:
  virtual ~AttentionImpl() = default;
  // Keys and values of this step are in the cache already. Tensors have been checked by the layer.
  // No allocation.
  virtual void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
                       Stream& stream) const = 0;
};

// A stateless const object that outlives everything made with it.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;
  virtual const Rows& rows() const = 0;
  // ConfigError for a key or bounds that make no sense or exceed what the backend can plan.
  virtual std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions&,
                                                                 const Context&) const = 0;
  // The layer's specification has been validated against rows().
  virtual std::unique_ptr<AttentionImpl> make_impl(const LayerSpec&, const Context&) const = 0;
};

// M& or const M& from the base: the library's only downcast of metadata. ContractError for another
// backend's.
template <class M, class A>
auto& metadata_cast(A& m) {
  using To = std::conditional_t<std::is_const_v<A>, const M, M>;
  if (typeid(m) != typeid(M)) throw ContractError("metadata of another backend");
  return static_cast<To&>(m);
}

}  // namespace fovea
