// SPDX-License-Identifier: Apache-2.0
// A cache with requests in it whose builders, plans and layers the test makes and calls itself: for
// what depends on plans, bounds and hints. Numbers are the same for the same place of a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/buffer.h"
#include "fovea/kv/layout.h"

namespace fovea::testing_cases {

using Lengths = std::vector<RequestLengths>;

class OwnCache {
 public:
  // Everything that the requests have is in the cache. The first `num_shared` tokens, whole blocks,
  // are the same for all of them, in the same blocks. Queries and cache are f32.
  OwnCache(const LayerSpec& spec, Lengths requests, int num_shared = 0);

  const LayerSpec& spec() const { return spec_; }
  const Lengths& requests() const { return requests_; }
  // The bits of the output of one call for these parts of the requests, in workspace of exactly the
  // size that the plan asks for. The step's keys and values are written once more, or not given.
  std::vector<std::uint32_t> forward(const AttentionLayer& layer, const AttentionMetadata& plan,
                                     const Lengths& parts, bool gives_keys = true);
  // Plan and call.
  std::vector<std::uint32_t> run(const AttentionBackend& backend, const Bounds& bounds,
                                 const BuildOptions& options = {}, Executor* executor = nullptr);
  // All bytes of the cache.
  std::vector<std::byte> bytes() const;

 private:
  int block_size() const { return spec_.block_size.tokens; }
  // Whose token it is: shared ones are the first request's.
  int owner(int request, int position) const { return position < num_shared_ ? 0 : request; }
  std::int64_t slot(int request, int position) const;

  LayerSpec spec_;
  Lengths requests_;
  int num_shared_, width_;
  PagedLayout layout_;
  Buffer memory_;
  KVCacheView view_;
  std::vector<std::int32_t> table_;
};

// Room for exactly these requests.
Bounds bounds_of(const Lengths& requests);
// A plan of its own for a batch.
struct Planned {
  Planned(const AttentionBackend& backend, const BuilderOptions& builder_options,
          const Lengths& requests, const BuildOptions& options = {}, Executor* executor = nullptr);
  std::unique_ptr<AttentionMetadataBuilder> builder;
  std::unique_ptr<AttentionMetadata> plan;
};

}  // namespace fovea::testing_cases
