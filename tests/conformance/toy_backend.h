// SPDX-License-Identifier: Apache-2.0
// A backend as plain as one can be, which does one thing wrong: what the kit must find.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/toy_plan.h"
#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"
#include "fovea/attention/mask.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

inline fovea::Row toy_row() {
  return {.name = "toy",
          .dtypes = {DType::kF32},
          .kv_dtypes = {KVDType::kF32},
          .head_sizes = {{1, 1, 32}},
          .head_sizes_v = {{1, 1, 32}},
          .features = {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal,
                       Feature::kLse, Feature::kBatchInvariance},
          .layouts = {kAllCacheLayouts.begin(), kAllCacheLayouts.end()}};
}

// One head of size 2, blocks of 4: numbers that can be worked out by hand.
inline Call toy_call(std::vector<Request> requests) {
  Call call;
  call.problem.requests = std::move(requests);
  call.problem.head_size = call.problem.head_size_v = 2;
  call.block_size = 4;
  return call;
}

// What a backend without globals would not keep.
struct ToyMemory {
  std::atomic<int> num_calls = 0;
  struct Seen {
    float scale = 0, soft_cap = 0;
    int window = 0;
    std::int64_t q_stride = 0, out_stride = 0;
    bool operator==(const Seen&) const = default;
  };
  // Whether the last call was another one. A call that is only repeated without keys does not
  // count.
  bool note(const Seen& now, bool counts) {
    const std::lock_guard lock(mutex);
    num_calls += counts ? 1 : 0;
    const bool differs = last && *last != now;
    last = now;
    return differs;
  }
  std::mutex mutex = {};
  std::optional<Seen> last = {};
};

class ToyImpl final : public AttentionImpl {
 public:
  ToyImpl(const LayerSpec& spec, Fault fault, int num_workers, ToyMemory& memory)
      : spec_(spec), fault_(fault), num_workers_(num_workers), memory_(&memory) {}

  void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
               Stream& /*stream*/) const override {
    if (has(Fault::kThrows)) throw std::runtime_error("the toy broke");
    if (has(Fault::kThrowsNumber)) throw 7;  // NOLINT(hicpp-exception-baseclass)
    if (has(Fault::kNeedsKeys) && args.k.ndim() == 0) throw std::runtime_error("no keys");
    if (has(Fault::kNeedsLse) && spec_.return_lse && args.lse == nullptr) return;
    if (has(Fault::kTakesAnySlot)) write_cache(args);
    const auto& plan = metadata_cast<ToyPlan>(metadata);
    if (has(Fault::kSharesScratch) && !keeps_scratch(args)) return;
    const ToyMemory::Seen now{spec_.scale, spec_.logits_soft_cap, spec_.sliding_window,
                              args.q.stride(0), args.out.stride(0)};
    const bool differs = memory_->note(now, args.k.ndim() != 0);
    for (int r = 0; r < plan.num_reqs; ++r) {
      for (int i = 0; i < num_queries(plan, r); ++i) {
        for (int h = 0; h < spec_.num_heads; ++h) attend({plan, args, r, i, h, differs});
      }
    }
    if (has(Fault::kWritesBehindOutput)) {
      // Not a whole row, which could end behind the guard bytes.
      args.out.data_as<float>()[args.out.size(0) * args.out.stride(0)] = 1;
    }
    if (has(Fault::kWritesIntoQuery) && plan.num_actual_tokens > 0)
      *args.q.data_as<float>() = -*args.q.data_as<float>();
    if (has(Fault::kWritesIntoCache)) *args.cache.keys.data_as<float>() = 1;
  }

 private:
  struct Place {
    const ToyPlan& plan;
    const ForwardArgs& args;
    int request, query, head;
    bool is_behind_another;  // the call before this one was another one
    int kv_len() const { return plan.lengths[static_cast<std::size_t>(request)]; }
    int token() const { return plan.starts[static_cast<std::size_t>(request)] + query; }
  };

  bool has(Fault f) const { return fault_ == f; }
  // Waits for another call to take the scratch memory, but not long.
  bool keeps_scratch(const ForwardArgs& args) const {
    using std::chrono::steady_clock;
    scratch_ = &args;
    const auto end = steady_clock::now() + std::chrono::milliseconds(2);
    while (scratch_ == &args && steady_clock::now() < end) std::this_thread::yield();
    return scratch_ == &args;
  }
  static int num_queries(const ToyPlan& plan, int r) {
    const auto at = static_cast<std::size_t>(r);
    return plan.starts[at + 1] - plan.starts[at];
  }

  static std::int32_t block_of(const Place& p, int key) {
    const TensorView& table = p.args.tables.block_table;
    const int column = key / p.args.cache.block_size.tokens;
    return table.data_as<std::int32_t>()[p.request * table.stride(0) + column * table.stride(1)];
  }

  const float* cell(const TensorView& cache, const Place& p, int key) const {
    const int kv_head = has(Fault::kMixesHeads) ? p.head % spec_.num_kv_heads
                                                : p.head / (spec_.num_heads / spec_.num_kv_heads);
    std::int64_t offset = block_of(p, key) * cache.stride(0) +
                          key % p.args.cache.block_size.tokens * cache.stride(1) +
                          kv_head * cache.stride(2);
    if (has(Fault::k32BitOffsets)) {
      constexpr std::int64_t kElements = (std::int64_t{1} << 32) / sizeof(float);
      offset %= kElements;
    }
    return cache.data_as<float>() + offset;
  }

  Interval seen_by(const Place& p) const {
    const int window = has(Fault::kIgnoresWindow) ? 0 : spec_.sliding_window;
    const bool causal = p.plan.causal || has(Fault::kIgnoresNonCausal);
    const int position = p.kv_len() - num_queries(p.plan, p.request) + p.query;
    Interval seen =
        visible(window_mask(window), {.kv_len = p.kv_len(), .causal = causal}, position).main;
    if (has(Fault::kTrustsCommonPrefix)) seen.end = std::max(seen.end, p.plan.common_prefix);
    return seen;
  }

  double logit_of(const Place& p, const float* q, int key) const {
    const float* k = cell(p.args.cache.keys, p, key);
    double dot = 0;
    for (int e = 0; e < spec_.head_size; ++e) dot += double{q[e]} * double{k[e]};
    const double x = dot * double{spec_.scale}, cap = spec_.logits_soft_cap;
    return cap > 0 && !has(Fault::kIgnoresSoftCap) ? cap * std::tanh(x / cap) : x;
  }

  void attend(const Place& p) const {
    const TensorView &q_all = p.args.q, &out_all = p.args.out;
    const float* q =
        q_all.data_as<float>() + p.token() * q_all.stride(0) + p.head * q_all.stride(1);
    float* out =
        out_all.data_as<float>() + p.token() * out_all.stride(0) + p.head * out_all.stride(1);
    if (has(Fault::kLeavesLastRow) && p.token() + 1 == p.plan.num_actual_tokens) return;
    const Interval seen = seen_by(p);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double largest = -kInfinity, z = 0;
    for (int key = seen.begin; key < seen.end; ++key)
      largest = std::max(largest, logit_of(p, q, key));
    std::vector<double> sum(static_cast<std::size_t>(spec_.head_size_v));
    const auto add = [&](int key, double weight) {
      const float* v = cell(p.args.cache.values, p, key);
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += weight * double{v[e]};
      z += weight;
    };
    for (int key = seen.begin; key < seen.end; ++key)
      add(key, std::exp(logit_of(p, q, key) - largest));
    for (int key = p.kv_len(); has(Fault::kReadsTails) && key % p.args.cache.block_size.tokens != 0;
         ++key)
      add(key, 0);
    const bool is_empty = seen.empty() && !has(Fault::kEmptyRowIsNaN);
    for (std::size_t e = 0; e < sum.size(); ++e)
      out[e] = is_empty ? 0 : static_cast<float>(sum[e] / z);
    if (!seen.empty() && is_off(p)) *out = neighbour(sum[0] / z);
    if (has(Fault::kWrongWhenFast) && p.plan.is_fast) *out += 1;
    if (p.args.lse == nullptr) return;
    double lse = seen.empty() ? -kInfinity : largest + std::log(z);
    if (p.args.lse->base == LseBase::k2 && !has(Fault::kIgnoresLseBase)) lse /= std::numbers::ln2;
    p.args.lse->at(p.token(), p.head) = static_cast<float>(lse);
  }

  bool is_off(const Place& p) const {
    switch (fault_) {
      case Fault::kSeesCallNumber:
        return memory_->num_calls % 2 == 0;
      case Fault::kSeesPlaces:
        return block_of(p, 0) % 2 != 0;
      case Fault::kSeesBatchSize:
        return p.plan.num_reqs == 1;
      case Fault::kSeesFirstQuery:
        return p.query == 0;
      case Fault::kSeesBlockSize:
        return p.args.cache.block_size.tokens > 16;
      case Fault::kSeesThreads:
        return num_workers_ > 1;
      case Fault::kSeesLastCall:
        return p.is_behind_another;
      default:
        return false;
    }
  }

  // The float on the other side of a number: off by at most one ulp, which every bound allows.
  static float neighbour(double x) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto nearest = static_cast<float>(x);
    return std::nextafter(nearest, x > double{nearest} ? kInfinity : -kInfinity);
  }

  void write_cache(const ForwardArgs& args) const {
    const TensorView& slots = args.tables.slot_mapping;
    const auto write = [&](const TensorView& cache, const TensorView& rows) {
      const std::int64_t block_size = cache.size(1);
      for (std::int64_t t = 0; t < slots.size(0); ++t) {
        const std::int64_t slot = slots.data_as<std::int64_t>()[t];
        if (slot < 0 || slot >= cache.size(0) * block_size) continue;
        for (std::int64_t h = 0; h < cache.size(2); ++h) {
          std::copy_n(rows.data_as<float>() + t * rows.stride(0) + h * rows.stride(1),
                      cache.size(3),
                      cache.data_as<float>() + slot / block_size * cache.stride(0) +
                          slot % block_size * cache.stride(1) + h * cache.stride(2));
        }
      }
    };
    write(args.cache.keys, args.k);
    write(args.cache.values, args.v);
  }

  LayerSpec spec_;
  Fault fault_;
  int num_workers_;
  ToyMemory* memory_;
  mutable std::atomic<const void*> scratch_ = nullptr;
};

class ToyBackend final : public AttentionBackend {
 public:
  explicit ToyBackend(Fault fault = Fault::kNone, Rows rows = {toy_row()})
      : fault_(fault), rows_(std::move(rows)) {
    for (fovea::Row& row : rows_)
      row.forward_includes_kv_cache_update = fault == Fault::kTakesAnySlot;
  }
  std::string_view name() const override { return "toy"; }
  const Rows& rows() const override { return rows_; }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions& options,
                                                         const Context&) const override {
    if (fault_ == Fault::kMakesNoBuilder) return nullptr;
    return std::make_unique<ToyBuilder>(options, fault_);
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec,
                                           const Context& context) const override {
    if (fault_ == Fault::kMakesNoImpl) return nullptr;
    if (fault_ == Fault::kThrowsNumberWhenMade) throw 7;  // NOLINT(hicpp-exception-baseclass)
    if (fault_ == Fault::kRefuses) throw ConfigError("head_size", "any", "none at all");
    const int workers = context.executor == nullptr ? 1 : context.executor->num_workers();
    return std::make_unique<ToyImpl>(spec, fault_, workers, memory_);
  }

 private:
  Fault fault_;
  Rows rows_;
  mutable ToyMemory memory_;
};

}  // namespace fovea::conformance
