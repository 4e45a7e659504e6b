// SPDX-License-Identifier: Apache-2.0
#include "histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sampler.h"

namespace fovea::conformance {

namespace {
std::string group_text(int group) {
  if (group <= 8) return fmt::format("{}", group);
  return group <= 16 ? "9 to 16" : "above 16";
}

std::string size_text(int size) {
  if (size % 16 == 0) return size <= 256 ? "multiple of 16" : "multiple of 16 above 256";
  return size < 16 ? "below 16" : "other";
}

bool any_request(const Call& call, bool (*is)(const Request&)) {
  return std::any_of(call.problem.requests.begin(), call.problem.requests.end(), is);
}

void add(RowReport& report, const std::string& what, const Call& call) {
  Count& n = report.histogram[what];
  ++n.calls;
  n.long_calls += is_long(call) ? 1 : 0;
  n.ragged_calls += is_ragged(call) ? 1 : 0;
}
}  // namespace

void count(RowReport& report, Feature feature, const Call& call) {
  add(report, fmt::format("feature {}", name_of(feature)), call);
}

void count(RowReport& report, const Call& call) {
  const Case& c = call.problem;
  const auto add = [&](std::string_view what, const auto& value) {
    conformance::add(report, fmt::format("{} {}", what, value), call);
  };
  const auto add_feature = [&](Feature f, bool is_on) {
    if (is_on) count(report, f, call);
  };
  add_feature(Feature::kSlidingWindow, c.window > 0);
  add_feature(Feature::kSoftCap, c.soft_cap > 0);
  add_feature(Feature::kNonCausal, call.non_causal);
  add_feature(Feature::kLse, call.return_lse);
  add("dtype", name_of(c.dtype));
  add("kv_dtype", name_of(c.kv_dtype));
  add("output_dtype", name_of(c.out_dtype));
  if (call.cache_form == CacheForm::kPaged) add("layout", name_of(call.layout));
  add("cache", name_of(call.cache_form));
  add("strided", name_of(call.strided));
  add("group_size", group_text(c.num_heads / c.num_kv_heads));
  add("head_size", size_text(c.head_size));
  add("block_size", call.block_size);
  if (has_extreme_logits(call)) add("logits", "beyond 65504");
  add("threads", call.num_workers);
  add("requests", c.requests.empty() ? "none" : c.requests.size() == 1 ? "one" : "several");
  if (call.lazy_memory) add("pool", "beyond 32 bits");
  if (c.head_size != c.head_size_v) add("head_size_v", "another");
  if (any_request(call, [](const Request& r) { return r.kv_len == 0; })) add("kv_len", 0);
  if (any_request(call, [](const Request& r) { return r.query_len == 0; })) add("query_len", 0);
  if (any_request(call, [](const Request& r) { return r.query_len > r.kv_len; }))
    add("query_len", "above kv_len");
  if (any_request(call, [](const Request& r) { return r.kv_len > 1024; })) add("kv_len", "long");
}

}  // namespace fovea::conformance
