// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>

#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea {
namespace {

std::string pair_text(int a, int b) {
  return a == b ? fmt::format("{}", a) : fmt::format("{}/{}", a, b);
}

std::string range_text(const Range& r) {
  return r.max == INT_MAX ? fmt::format("{}..∞", r.min) : fmt::format("{}..{}", r.min, r.max);
}

std::string features_text(FlagSet<Feature> features) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (features.has(feature)) names.push_back(name_of(feature));
  }
  return fmt::format("{{{}}}", fmt::join(names, ", "));
}

// Every field of the problem; those that were left open are left out.
std::string problem_text(const Problem& p) {
  std::string text = fmt::format("dtype={} kv_dtype={}", name_of(p.dtype), name_of(p.kv_dtype));
  if (p.output_dtype != p.dtype) text += fmt::format(" output_dtype={}", name_of(p.output_dtype));
  text += fmt::format(" num_heads={} head_size={}", pair_text(p.num_heads, p.num_kv_heads),
                      pair_text(p.head_size, p.head_size_v));
  if (p.block_size.tokens != 0) text += fmt::format(" block_size={}", p.block_size.tokens);
  if (p.layout) text += fmt::format(" layout={}", name_of(*p.layout));
  if (p.attn_type != AttentionType::kDecoder)
    text += fmt::format(" attn_type={}", name_of(p.attn_type));
  if (p.query_len != Range{1, INT_MAX})
    text += fmt::format(" query_len={}", range_text(p.query_len));
  return text + " features=" + features_text(p.features);
}

// The reasons of one backend on one line.
std::string one_line(const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) {
    if (!text.empty()) text += " | ";
    text += to_text({&reason, 1});
  }
  return text;
}

}  // namespace

std::string explain(const Choice& choice, const Problem& problem, const Device& device) {
  std::string text =
      fmt::format("problem  {}  device {}\n", problem_text(problem), name_of(device));
  std::size_t width = 0;
  for (const Considered& c : choice.considered) width = std::max(width, c.backend->name().size());
  for (const Considered& c : choice.considered) {
    const std::string_view name = c.backend->name();
    if (!c.support) {
      text += fmt::format("  {:<{}}  no   {}\n", name, width, one_line(c.support.reasons));
    } else {
      text += fmt::format("  {:<{}}  yes  rank {}", name, width, c.rank);
      if (c.backend == choice.backend) text += fmt::format("  -> {}", name);
      text += '\n';
    }
  }
  if (choice.considered.empty()) text += "  no backend was asked\n";
  return text;
}

}  // namespace fovea
