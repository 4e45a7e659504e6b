// SPDX-License-Identifier: Apache-2.0
// The attention layer: what a model author sees. Writes this step's keys and values into the cache,
// attends, returns.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fovea/attention/backend.h"
#include "fovea/attention/capability.h"
#include "fovea/attention/logits.h"
#include "fovea/attention/mask.h"
#include "fovea/attention/metadata.h"
#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"

namespace fovea {

// Specification 2.1, by name. Heads are those of this rank.
struct LayerSpec {
  std::string name = {};                   // unique in a model; also its name in a forward context
  int num_heads = 0, num_kv_heads = 0;     // num_kv_heads 0: num_heads
  int head_size = 0, head_size_v = 0;      // head_size_v 0: head_size
  float scale = 1;                         // softmax scale, used as given
  float logits_soft_cap = 0;               // 0: off
  DType dtype = DType::kF32;               // of q, k, v
  std::optional<DType> output_dtype = {};  // none: dtype
  std::optional<KVDType> kv_dtype = {};    // none: plain storage of dtype
  AttentionType attn_type = AttentionType::kDecoder;
  int sliding_window = 0;   // tokens, the current one included; 0: none
  bool non_causal = false;  // some batches will have causal = false
  bool return_lse = false;  // some calls will ask for the LSE
  ManagerBlockSize block_size = {16};
  // 0: the manager's, and a layer takes the largest divisor of it that its backend works with.
  KernelBlockSize kernel_block_size = {};
  std::optional<CacheLayout> layout = {};  // none: any
};
// The specification with its defaults filled in. ConfigError with every value that makes no sense
// by itself.
LayerSpec complete(const LayerSpec& spec);
// What a completed specification asks of a backend.
Problem problem_of(const LayerSpec& spec);
PlanKey plan_key(std::string_view backend, const LayerSpec& spec);
KVCacheSpec kv_cache_spec(const LayerSpec& spec);

// One call. k and v may have more rows than there are new tokens; slot_mapping's length says how
// many are written.
struct LayerCall {
  const TensorView&
      q;  // [>= num_actual_tokens, num_heads, head_size] or [.., num_heads · head_size]
  const TensorView& k;  // [>= num slots, num_kv_heads, head_size] or flat
  const TensorView& v;  // [>= num slots, num_kv_heads, head_size_v] or flat
  const KVCacheView& cache;
  const BlockTables& tables;
  const TensorView& out;  // [>= num_actual_tokens, num_heads, head_size_v] or flat; rows behind the
                          // live ones become 0
  // Only where return_lse is set: [num_heads, >= num_actual_tokens] or the other layout; what lies
  // behind the live tokens becomes minus infinity.
  const Lse* lse = nullptr;
  // uint8 [>= the builder's workspace_bytes], aligned to 64; one per call in flight.
  TensorView workspace = {};
};

class AttentionLayer {
 public:
  // Throws ConfigError with every reason why this backend cannot serve the specification on
  // `device`.
  AttentionLayer(const LayerSpec& spec, const AttentionBackend& backend, const Device& device,
                 const Context& context);

  const LayerSpec& spec() const { return spec_; }  // completed
  const AttentionBackend& backend() const { return *backend_; }
  PlanKey plan_key() const { return fovea::plan_key(backend_->name(), spec_); }

  // Append, attend, clear the padding. Without metadata (a profiling run without a cache) the
  // output becomes 0 and nothing else is read or written. Everything that the host can see is
  // checked before anything is written: InputError names the argument. No allocation. May run in
  // many threads at once over disjoint outputs, slots and workspaces.
  void forward(const AttentionMetadata* metadata, const LayerCall& call, Stream& stream) const;

 private:
  LayerSpec spec_;
  const AttentionBackend* backend_;
  bool writes_cache_ = false;
  std::unique_ptr<AttentionImpl> impl_;
};

// What one step of one layer needs besides its tensors. Views, not owned.
struct LayerStep {
  const AttentionMetadata* metadata = nullptr;  // null: a profiling run
  BlockTables tables = {};
  KVCacheView cache = {};
  TensorView workspace = {};
};
// Layers by name: a thin map above the direct call, an object that the caller passes. Filling it
// allocates, calls do not. Not thread-safe while it is filled.
class ForwardContext {
 public:
  // The layer is not owned. InputError for a name that is empty or taken (specification 2.2, step
  // 12).
  void add(const AttentionLayer& layer);
  void set_step(std::string_view layer, const LayerStep& step);
  struct Tensors {
    const TensorView& q;
    const TensorView& k;
    const TensorView& v;
    const TensorView& out;
  };
  // InputError for an unknown name.
  void forward(std::string_view layer, const Tensors& tensors, Stream& stream,
               const Lse* lse = nullptr) const;

 private:
  struct Entry {
    const AttentionLayer* layer = nullptr;
    LayerStep step = {};
  };
  std::map<std::string, Entry, std::less<>> layers_;
};

}  // namespace fovea
