// SPDX-License-Identifier: Apache-2.0
// The backend around the faulty driver. What goes wrong before and behind cpu's own code does so
// here: a layer's numbers, the tensors of a call, writes beside them.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backends/cpu/impl.h"
#include "backends/cpu/item_run.h"
#include "backends/cpu/metadata.h"
#include "backends/cpu/table.h"
#include "faults/cpu/points.h"
#include "faults/faults.h"
#include "fovea/base/device.h"

namespace fovea::faults {

namespace {
std::atomic<Fault>& in_force() {
  static std::atomic<Fault> fault = Fault::kNone;
  return fault;
}

void run_faulty_item(const cpu::Call& call, const cpu::Item& item, int kv_head, int worker) {
  cpu::run_item_over<FaultPoints>(call, item, kv_head, worker);
}

float scale_of_first_layer(float scale) {
  static std::optional<float> first;
  if (!first) first = scale;
  return *first;
}

float scale_of_same_shape(const LayerSpec& spec) {
  static std::map<std::array<int, 4>, float> scales;
  const std::array<int, 4> shape = {spec.num_heads, spec.num_kv_heads, spec.head_size,
                                    spec.head_size_v};
  return scales.emplace(shape, spec.scale).first->second;
}

LayerSpec with_fault(Fault fault, LayerSpec spec) {
  switch (fault) {
    case Fault::kSoftCapDropped:
      spec.logits_soft_cap = 0;
      break;
    case Fault::kSoftCapBeforeScale:  // scale * cap * tanh(dot / cap)
      spec.logits_soft_cap *= spec.scale;
      break;
    case Fault::kScaleIgnored:
      spec.scale = 1 / std::sqrt(static_cast<float>(spec.head_size));
      break;
    case Fault::kScaleOfFirstLayer:
      spec.scale = scale_of_first_layer(spec.scale);
      break;
    case Fault::kScaleOfSameShape:
      spec.scale = scale_of_same_shape(spec);
      break;
    default:
      break;
  }
  return spec;
}

TensorView dense(const TensorView& t) { return {t.data(), t.dtype(), t.shape()}; }

// The memory of an LSE of some layout as if it were [tokens, heads].
Lse by_token(const Lse& lse, int num_heads) {
  if (lse.layout == LseLayout::kTokensHeads) return lse;
  Lse changed = lse;
  changed.data = {lse.data.data(), lse.data.dtype(), {lse.data.size(1), num_heads}};
  changed.layout = LseLayout::kTokensHeads;
  return changed;
}

// Not where there are no guards: in a cache that is larger than memory.
void write_row_too_many(const ForwardArgs& args, std::int64_t num_tokens) {
  constexpr std::int64_t kGiant = std::int64_t{1} << 31;
  const TensorView& out = args.out;
  if (out.data() == nullptr || args.cache.keys.size(0) * args.cache.keys.stride(0) >= kGiant)
    return;
  const auto size = static_cast<std::int64_t>(size_of(out.dtype()));
  std::memset(out.data_as<std::byte>() + num_tokens * out.stride(0) * size, 0,
              static_cast<std::size_t>(std::min<std::int64_t>(out.size(2) * size, 64)));
}

void write_tails(const cpu::Metadata& plan, const ForwardArgs& args) {
  const TensorView &keys = args.cache.keys, &table = args.tables.block_table;
  const int block_size = args.cache.block_size.tokens;
  for (std::size_t r = 0; r < plan.lengths.size(); ++r) {
    const int length = plan.lengths[r];
    if (length % block_size == 0) continue;
    const auto row = static_cast<std::int64_t>(r) * table.stride(0);
    const std::int64_t block =
        table.data_as<const std::int32_t>()[row + length / block_size * table.stride(1)];
    const auto size = static_cast<std::int64_t>(size_of(keys.dtype()));
    const std::int64_t element = block * keys.stride(0) + length % block_size * keys.stride(1);
    std::memset(keys.data_as<std::byte>() + element * size, 0, static_cast<std::size_t>(size));
  }
}

void write_queries(const TensorView& q, std::int64_t num_tokens) {
  if (num_tokens > 0) *q.data_as<std::byte>() ^= std::byte{1};
}

void remember(const cpu::Metadata& plan, const ForwardArgs& args) {
  const TensorView& table = args.tables.block_table;
  const int block_size = args.cache.block_size.tokens;
  history().table.clear();
  for (std::size_t r = 0; r < plan.lengths.size(); ++r) {
    const auto row = static_cast<std::int64_t>(r) * table.stride(0);
    std::vector<std::int32_t>& ids = history().table.emplace_back();
    for (std::int64_t column = 0; column * block_size < plan.lengths[r]; ++column)
      ids.push_back(table.data_as<const std::int32_t>()[row + column * table.stride(1)]);
  }
}

class FaultyImpl final : public AttentionImpl {
 public:
  FaultyImpl(Fault fault, const LayerSpec& spec)
      : fault_(fault),
        num_heads_(spec.num_heads),
        impl_(with_fault(fault, spec), cpu::kernels_for(Device::host().cpu_level),
              &run_faulty_item) {}

  void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
               Stream& stream) const override {
    choose(fault_);
    ++history().calls;
    const TensorView q = fault_ == Fault::kQueriesTakenForDense ? dense(args.q) : args.q;
    const TensorView out = fault_ == Fault::kOutputTakenForDense ? dense(args.out) : args.out;
    std::optional<Lse> lse;
    if (args.lse != nullptr)
      lse = fault_ == Fault::kLseLayoutIgnored ? by_token(*args.lse, num_heads_) : *args.lse;
    impl_.forward(metadata,
                  {.q = q,
                   .cache = args.cache,
                   .tables = args.tables,
                   .out = out,
                   .lse = lse ? &*lse : nullptr,
                   .workspace = args.workspace,
                   .k = args.k,
                   .v = args.v},
                  stream);
    const auto& plan = metadata_cast<cpu::Metadata>(metadata);
    write_beside(plan, args);
    remember(plan, args);
  }

 private:
  void write_beside(const cpu::Metadata& plan, const ForwardArgs& args) const {
    if (fault_ == Fault::kRowTooMany) {
      write_row_too_many(args, plan.num_actual_tokens);
    } else if (fault_ == Fault::kTailWritten) {
      write_tails(plan, args);
    } else if (fault_ == Fault::kWorkspaceOverrun) {
      args.workspace.data_as<std::byte>()[plan.workspace_bytes] = std::byte{0};
    } else if (fault_ == Fault::kQueriesWritten) {
      write_queries(args.q, plan.num_actual_tokens);
    }
  }

  Fault fault_;
  int num_heads_;
  cpu::Impl impl_;
};

class FaultyBackend final : public AttentionBackend {
 public:
  explicit FaultyBackend(Fault fault) : fault_(fault) {}
  std::string_view name() const override { return "cpu"; }
  const Rows& rows() const override { return cpu::rows(); }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions& options,
                                                         const Context& context) const override {
    return std::make_unique<cpu::Builder>(options, context);
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec,
                                           const Context& /*context*/) const override {
    return std::make_unique<FaultyImpl>(fault_, spec);
  }

 private:
  Fault fault_;
};
}  // namespace

Fault chosen() { return in_force().load(std::memory_order_relaxed); }
void choose(Fault fault) { in_force().store(fault, std::memory_order_relaxed); }

History& history() {
  static History kept;
  return kept;
}

const AttentionBackend& faulty_cpu(Fault fault) {
  static std::map<Fault, FaultyBackend> backends;
  return backends.try_emplace(fault, fault).first->second;
}

}  // namespace fovea::faults
