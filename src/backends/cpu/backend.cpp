// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/backend.h"

#include <memory>
#include <string_view>

#include "backends/cpu/impl.h"
#include "backends/cpu/metadata.h"
#include "backends/cpu/table.h"

namespace fovea::cpu {

namespace {
class Backend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "cpu"; }
  const Rows& rows() const override { return cpu::rows(); }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions& options,
                                                         const Context& context) const override {
    return std::make_unique<Builder>(options, context);
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec,
                                           const Context& /*context*/) const override {
    return std::make_unique<Impl>(spec, kernels_for(Device::host().cpu_level));
  }
};
}  // namespace

const AttentionBackend& backend();
const AttentionBackend& backend() {
  static const Backend the_backend;
  return the_backend;
}

}  // namespace fovea::cpu
