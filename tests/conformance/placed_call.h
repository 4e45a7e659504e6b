// SPDX-License-Identifier: Apache-2.0
// A call's tensors, cache and tables, filled and ready to be recorded, without a backend that runs
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fovea/attention/host_batch.h"
#include "fovea/conformance/call.h"
#include "fovea/conformance/record.h"
#include "paged_pool.h"
#include "paged_run.h"
#include "rules.h"
#include "step_tensors.h"

namespace fovea::conformance::test {

class PlacedCall {
 public:
  explicit PlacedCall(const Call& call)
      : call_(call),
        values_(make_values(call)),
        pool_(call_, values_),
        step_(call_, call.problem.requests),
        batch_(static_cast<int>(call.problem.requests.size())) {
    const auto fill = [this](HostTensor& t, int heads, int size) {
      for (int row = 0; row < step_.rows; ++row)
        for (int h = 0; h < heads; ++h)
          for (int e = 0; e < size; ++e) t.set(row, h, e, row + 0.5 * h + 0.25 * e);
    };
    const Case& c = call.problem;
    fill(step_.q, c.num_heads, c.head_size);
    fill(step_.k, c.num_kv_heads, c.head_size);
    fill(step_.v, c.num_kv_heads, c.head_size_v);
    std::size_t token = 0;
    for (std::size_t r = 0; r < c.requests.size(); ++r) {
      for (int p = c.requests[r].kv_len - c.requests[r].query_len; p < c.requests[r].kv_len; ++p) {
        const std::int64_t slot = pool_.slot(static_cast<int>(r), p);
        std::memcpy(step_.slots.data() + token++ * sizeof(slot), &slot, sizeof(slot));
      }
      lengths_.push_back({c.requests[r].query_len, c.requests[r].kv_len});
    }
    const auto num_reqs = static_cast<int>(c.requests.size());
    given = {.batch = batch_.set(lengths_, c.causal),
             .q = step_.given(step_.q),
             .k = step_.given(step_.k),
             .v = step_.given(step_.v),
             .out = step_.given(step_.out),
             .cache = pool_.view(),
             .tables = pool_.tables(num_reqs, step_.slots),
             .lse = step_.lse_view,
             .wants_lse = call.return_lse,
             .workspace = {}};
  }
  PlacedCall(const PlacedCall&) = delete;
  PlacedCall& operator=(const PlacedCall&) = delete;
  ~PlacedCall() = default;

  Call record(const LayerSpec& spec, const AttentionBackend& backend) const {
    const AttentionLayer layer(spec, backend, Device::host(), Context{});
    return record_call(layer, given.batch,
                       {.q = given.q,
                        .k = given.k,
                        .v = given.v,
                        .cache = given.cache,
                        .tables = given.tables,
                        .out = given.out,
                        .lse = given.wants_lse ? &given.lse : nullptr});
  }
  Call record(const AttentionBackend& backend) const { return record(layer_spec(call_), backend); }

  Given given = {};  // to be spoiled

 private:
  Call call_;
  std::vector<Values> values_;
  PagedPool pool_;
  StepTensors step_;
  HostBatch batch_;
  std::vector<RequestLengths> lengths_;
};

}  // namespace fovea::conformance::test
