// SPDX-License-Identifier: Apache-2.0
// Backends for tests: any name, any rows, an implementation that leaves marks.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"

namespace fovea::testing {

// What the implementations of one backend were asked to do. Tests are single-threaded.
struct Calls {
  int num_forwards = 0;
  int num_impls = 0;
  LayerSpec spec = {};                          // of the last make_impl
  TensorView q = {}, out = {}, k = {}, v = {};  // of the last forward
};

// Fills the live rows of the output with 7 and their LSE with 1.
class FakeImpl final : public AttentionImpl {
 public:
  FakeImpl(const LayerSpec& spec, Calls& calls) : spec_(spec), calls_(&calls) {}
  void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
               Stream& /*stream*/) const override {
    ++calls_->num_forwards;
    calls_->q = args.q;
    calls_->out = args.out;
    calls_->k = args.k;
    calls_->v = args.v;
    for (int t = 0; t < metadata.num_actual_tokens; ++t) {
      for (int h = 0; h < spec_.num_heads; ++h) {
        for (int d = 0; d < spec_.head_size_v; ++d)
          args.out.data_as<float>()[t * args.out.stride(0) + h * args.out.stride(1) + d] = 7;
        if (args.lse != nullptr) args.lse->at(t, h) = 1;
      }
    }
  }

 private:
  LayerSpec spec_;
  Calls* calls_;
};

class FakeBuilder final : public AttentionMetadataBuilder {
 public:
  std::unique_ptr<AttentionMetadata> allocate() const override {
    return std::make_unique<AttentionMetadata>();
  }
  void build(const CommonAttentionMetadata& /*batch*/, const BuildOptions& /*options*/,
             AttentionMetadata& /*out*/, Stream& /*stream*/) const override {}
};

class FakeBackend : public AttentionBackend {
 public:
  FakeBackend(std::string name, Rows rows) : name_(std::move(name)), rows_(std::move(rows)) {}
  std::string_view name() const override { return name_; }
  const Rows& rows() const override { return rows_; }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions&,
                                                         const Context&) const override {
    return std::make_unique<FakeBuilder>();
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec, const Context&) const override {
    ++calls.num_impls;
    calls.spec = spec;
    return std::make_unique<FakeImpl>(spec, calls);
  }

  mutable Calls calls;

 private:
  std::string name_;
  Rows rows_;
};

// A CPU row that admits every plain float32 decoder layer without features.
inline Row plain_row() {
  Row row;
  row.name = "plain";
  row.dtypes = {DType::kF32};
  row.kv_dtypes = {KVDType::kF32};
  return row;
}

}  // namespace fovea::testing
