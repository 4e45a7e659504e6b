// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/call.h"

#include <sstream>

#include "call_words.h"
#include "dense.h"

namespace fovea::conformance {

namespace {
template <class E>
std::string_view word_or_invalid(E value) {
  const std::string_view word = word_of(value);
  return word.empty() ? "invalid" : word;
}
}  // namespace

std::string_view name_of(Poison p) { return word_or_invalid(p); }
std::string_view name_of(Strided s) { return word_or_invalid(s); }
std::string_view name_of(CacheForm f) { return word_or_invalid(f); }

std::string describe(const Call& call) {
  std::ostringstream text;
  text << "seed " << call.seed << ": " << describe(call.problem) << " BS=" << call.block_size << 'x'
       << call.kernel_blocks_per_manager_block << " layout " << fovea::name_of(call.layout)
       << " layer " << call.layer << '/' << call.num_layers << ' ' << name_of(call.cache_form)
       << " strided " << name_of(call.strided) << (call.head_major ? " head-major" : "")
       << (call.strides == TensorStrides() ? "" : " given strides") << (call.flat ? " flat" : "")
       << " padding " << call.padding_rows << (call.padded_slots ? " (slots too)" : "")
       << (call.block_zero_lives ? " block 0 lives" : "") << " workers " << call.num_workers;
  if (call.return_lse) {
    text << " lse base " << word_or_invalid(call.lse_base)
         << (call.lse_layout == LseLayout::kHeadsTokens ? " [heads, tokens]" : " [tokens, heads]");
  }
  if (!call.steps.empty()) text << " in " << call.steps.size() << " steps";
  if (call.lazy_memory) text << " lazy memory";
  return text.str();
}

}  // namespace fovea::conformance
