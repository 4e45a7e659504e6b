// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/backend.h"

#include <memory>
#include <string_view>

#include "backends/cpu_reference/impl.h"
#include "backends/cpu_reference/metadata.h"
#include "backends/cpu_reference/table.h"

namespace fovea::cpu_reference {

namespace {
class Backend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "cpu_reference"; }
  const Rows& rows() const override { return cpu_reference::rows(); }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions& options,
                                                         const Context& context) const override {
    return std::make_unique<Builder>(options, context);
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec,
                                           const Context& /*context*/) const override {
    return std::make_unique<Impl>(spec);
  }
};
}  // namespace

const AttentionBackend& backend();
const AttentionBackend& backend() {
  static const Backend instance;
  return instance;
}

}  // namespace fovea::cpu_reference
