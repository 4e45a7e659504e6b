// SPDX-License-Identifier: Apache-2.0
// Sizes of cache pages, memory of a request, and what may be freed or merged (6.3 to 6.6).
#include "fovea/kv/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kv/checked.h"

namespace fovea {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

constexpr std::int64_t kScaleBytes = 4;    // a float32 behind the codes of one token and head
constexpr std::int64_t kNvfp4Group = 16;   // elements that share a one-byte scale
constexpr std::int64_t kDsMlaBytes = 656;  // 13.6: 512 codes, 4 scales, 64 rotary bf16
constexpr int kDsMlaHeadSize = 512 + 64;   // latent and rotary part

// What head sizes a format takes, and the bytes of a row of that many elements.
struct FormatRule {
  std::int64_t multiple = 1;  // every head size is a multiple
  bool key_only = false;      // a value size of 0 is legal: the key row is the value row as well
};
FormatRule rule_of(KVDType t) {
  switch (t) {
    case KVDType::kInt4PerTokenHead:
      return {.multiple = 2};
    case KVDType::kNvfp4:
    case KVDType::kNvfp4FourOverSix:
      return {.multiple = kNvfp4Group};
    case KVDType::kF32:
    case KVDType::kF16:
    case KVDType::kBF16:
      return {.key_only = true};
    default:
      return {};
  }
}

std::int64_t row_bytes(KVDType t, std::int64_t head_size) {
  switch (t) {
    case KVDType::kF32:
      return 4 * head_size;
    case KVDType::kF16:
    case KVDType::kBF16:
      return 2 * head_size;
    case KVDType::kFp8E4M3:
    case KVDType::kFp8E5M2:
      return head_size;
    case KVDType::kInt8PerTokenHead:
    case KVDType::kFp8PerTokenHead:
      return head_size + kScaleBytes;
    case KVDType::kInt4PerTokenHead:
      return head_size / 2 + kScaleBytes;
    case KVDType::kNvfp4:
    case KVDType::kNvfp4FourOverSix:
      return head_size / 2 + head_size / kNvfp4Group;
    case KVDType::kFp8DsMla:
      return head_size == 0 ? 0 : kDsMlaBytes;
  }
  return 0;  // not reached: add_head_size_reasons refuses other values
}

void add_head_size_reason(std::vector<Reason>& out, std::string_view field, int size,
                          const SplitKV& f) {
  const FormatRule rule = rule_of(f.dtype);
  const bool may_be_zero = rule.key_only && field == "head_size_v";
  if (size > 0 ? size % rule.multiple == 0 : size == 0 && may_be_zero) return;
  out.push_back({.field = std::string(field),
                 .wanted = fmt::format("{}", size),
                 .supported = rule.multiple == 1 ? std::string("a positive number")
                                                 : fmt::format("a positive multiple of {} for {}",
                                                               rule.multiple, name_of(f.dtype)),
                 .way_out = size > 0 ? fmt::format("pad the heads with zeros to {}, or store the "
                                                   "cache in another format",
                                                   ceil_div(size, rule.multiple) * rule.multiple)
                                     : "give the model's head size"});
}

void add_head_size_reasons(std::vector<Reason>& out, const SplitKV& f) {
  if (f.dtype > KVDType::kFp8DsMla) {
    out.push_back({.field = "kv_cache_dtype",
                   .wanted = fmt::format("format number {}", static_cast<int>(f.dtype)),
                   .supported = "a KVDType",
                   .way_out = "use parse_kv_dtype"});
  } else if (f.dtype == KVDType::kFp8DsMla) {
    if (f.head_size == kDsMlaHeadSize && f.head_size_v == 0) return;
    out.push_back({.field = "head_size",
                   .wanted = fmt::format("{} and {} for values", f.head_size, f.head_size_v),
                   .supported = fmt::format("{} and 0 for fp8_ds_mla", kDsMlaHeadSize),
                   .way_out = "store the cache in another format"});
  } else {
    add_head_size_reason(out, "head_size", f.head_size, f);
    add_head_size_reason(out, "head_size_v", f.head_size_v, f);
  }
}

void add_at_least(std::vector<Reason>& out, std::string_view field, std::int64_t given,
                  std::int64_t least, std::string_view way_out) {
  if (given >= least) return;
  out.push_back({.field = std::string(field),
                 .wanted = fmt::format("{}", given),
                 .supported = fmt::format("at least {}", least),
                 .way_out = std::string(way_out)});
}

void add_format_reasons(std::vector<Reason>& out, const TokenFormat& format) {
  std::visit(Overloaded{[&](const SplitKV& f) {
               add_at_least(out, "num_kv_heads", f.num_kv_heads, 1,
                            "give the model's number of KV heads");
               if (f.dtype == KVDType::kFp8DsMla && f.num_kv_heads > 1) {
                 out.push_back({.field = "num_kv_heads",
                                .wanted = fmt::format("{}", f.num_kv_heads),
                                .supported = "1 for fp8_ds_mla",
                                .way_out = "store the cache in another format"});
               }
               add_head_size_reasons(out, f);
             }},
             format);
}

void add_retention_reasons(std::vector<Reason>& out, const Retention& retention) {
  std::visit(Overloaded{[&](const KeepAll& r) {
                          add_at_least(out, "sliding_window", r.sliding_window, 0,
                                       "leave it at 0 for none");
                        },
                        [&](const KeepWindow& r) {
                          add_at_least(out, "sliding_window", r.tokens, 1, "use KeepAll for none");
                        }},
             retention);
}

void throw_if_any(std::vector<Reason> reasons) {
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));
}

std::int64_t product_or_throw(std::string_view field, std::initializer_list<std::int64_t> factors,
                              std::string_view what) {
  if (const auto product = checked_product(factors)) return *product;
  throw ConfigError(field, what, "a number of bytes below 2^63",
                    fmt::format("use a smaller {}", field));
}

std::int64_t token_bytes(const TokenFormat& format) {
  return std::visit(Overloaded{[](const SplitKV& f) {
                      return product_or_throw(
                          "num_kv_heads", {f.num_kv_heads, content_bytes(f)},
                          fmt::format("{} heads of {} bytes", f.num_kv_heads, content_bytes(f)));
                    }},
                    format);
}

}  // namespace

int kernel_blocks_per_manager_block(ManagerBlockSize manager, KernelBlockSize kernel) {
  std::vector<Reason> reasons;
  add_at_least(reasons, "manager_block_size", manager.tokens, 1, "use 16, the usual size");
  add_at_least(reasons, "kernel_block_size", kernel.tokens, 1, "use the manager block size");
  throw_if_any(std::move(reasons));
  if (manager.tokens % kernel.tokens != 0) {
    throw ConfigError("kernel_block_size", fmt::format("{}", kernel.tokens),
                      fmt::format("a divisor of the manager block size {}", manager.tokens),
                      fmt::format("use {} for both", manager.tokens));
  }
  return manager.tokens / kernel.tokens;
}

std::string_view kind_of(const KVCacheSpec& spec) {
  return std::visit(
      Overloaded{[](const KeepAll&) -> std::string_view { return "full_attention"; },
                 [](const KeepWindow&) -> std::string_view { return "sliding_window"; }},
      spec.retention);
}

std::int64_t key_bytes(const SplitKV& format) {
  std::vector<Reason> reasons;
  add_head_size_reasons(reasons, format);
  throw_if_any(std::move(reasons));
  return row_bytes(format.dtype, format.head_size);
}

std::int64_t content_bytes(const SplitKV& format) {
  return key_bytes(format) + row_bytes(format.dtype, format.head_size_v);
}

std::int64_t page_size_bytes(const KVCacheSpec& spec) {
  std::vector<Reason> reasons;
  add_format_reasons(reasons, spec.format);
  add_at_least(reasons, "block_size", spec.block_size.tokens, 1, "use 16, the usual size");
  add_at_least(reasons, "page_size_padded", spec.page_size_padded, 0, "leave it at 0 for none");
  throw_if_any(std::move(reasons));
  const std::int64_t per_token = token_bytes(spec.format);
  const std::int64_t content =
      product_or_throw("block_size", {spec.block_size.tokens, per_token},
                       fmt::format("{} tokens of {} bytes", spec.block_size.tokens, per_token));
  if (spec.page_size_padded == 0) return content;
  if (spec.page_size_padded < content) {
    throw ConfigError("page_size_padded", fmt::format("{}", spec.page_size_padded),
                      fmt::format("at least the content of a page, {} bytes", content),
                      "leave it at 0 for no padding");
  }
  return spec.page_size_padded;
}

std::int64_t bytes_per_token(const KVCacheSpec& spec) {
  std::vector<Reason> reasons;
  add_format_reasons(reasons, spec.format);
  throw_if_any(std::move(reasons));
  return token_bytes(spec.format);
}

std::int64_t max_memory_usage_bytes(const KVCacheSpec& spec, const Bounds& bounds) {
  const std::int64_t page = page_size_bytes(spec);
  std::vector<Reason> reasons;
  add_retention_reasons(reasons, spec.retention);
  add_at_least(reasons, "max_model_len", bounds.max_model_len, 1,
               "give the longest request, prompt and generated tokens");
  if (std::holds_alternative<KeepWindow>(spec.retention)) {
    add_at_least(reasons, "max_num_tokens", bounds.max_num_tokens, 1,
                 "give the most query tokens of one step");
  }
  throw_if_any(std::move(reasons));
  const std::int64_t block_size = spec.block_size.tokens, max_len = bounds.max_model_len;
  const std::int64_t num_blocks = std::visit(
      Overloaded{[&](const KeepAll&) { return ceil_div(max_len, block_size); },
                 [&](const KeepWindow& r) {
                   // One more block, because a window rarely starts at the border of a block.
                   const std::int64_t live = std::int64_t{r.tokens} - 1 + bounds.max_num_tokens;
                   return ceil_div(std::min(live, max_len), block_size) + 1;
                 }},
      spec.retention);
  return product_or_throw("max_model_len", {num_blocks, page},
                          fmt::format("{} blocks of {} bytes", num_blocks, page));
}

std::int64_t skippable_tokens(const KVCacheSpec& spec, std::int64_t computed) {
  std::vector<Reason> reasons;
  add_retention_reasons(reasons, spec.retention);
  throw_if_any(std::move(reasons));
  if (computed < 0) throw InputError("computed", fmt::format("{}", computed), "at least 0");
  return std::visit(Overloaded{[](const KeepAll&) { return std::int64_t{0}; },
                               [&](const KeepWindow& r) {
                                 return std::max<std::int64_t>(
                                     0, computed - (std::int64_t{r.tokens} - 1));
                               }},
                    spec.retention);
}

namespace {

MergedSpec refused(std::string_view field, std::string wanted, std::string_view supported) {
  return {.reason = {.field = std::string(field),
                     .wanted = std::move(wanted),
                     .supported = std::string(supported),
                     .way_out = "put the layers into different groups"}};
}

// The first field, other than the retention, in which two specs differ; empty: none.
std::string_view different_field(const KVCacheSpec& a, const KVCacheSpec& b) {
  if (a.format != b.format) return "format";
  if (a.block_size != b.block_size) return "block_size";
  if (a.page_size_padded != b.page_size_padded) return "page_size_padded";
  return {};
}

std::string value_of(const KVCacheSpec& spec, std::string_view field) {
  if (field == "block_size") return fmt::format("{}", spec.block_size.tokens);
  if (field == "page_size_padded") return fmt::format("{}", spec.page_size_padded);
  return std::visit(Overloaded{[](const SplitKV& f) {
                      return fmt::format("{} of {} heads, {}/{}", name_of(f.dtype), f.num_kv_heads,
                                         f.head_size, f.head_size_v);
                    }},
                    spec.format);
}

}  // namespace

MergedSpec merge_specs(std::span<const KVCacheSpec> specs) {
  if (specs.empty()) {
    return {.reason = {.field = "specs",
                       .wanted = "no layer",
                       .supported = "at least one layer in a group",
                       .way_out = "leave the group out"}};
  }
  KVCacheSpec merged = specs[0];
  for (const KVCacheSpec& spec : specs.subspan(1)) {
    if (const std::string_view field = different_field(merged, spec); !field.empty()) {
      return refused(field, value_of(merged, field) + " and " + value_of(spec, field),
                     "equal in all layers of a group");
    }
    if (merged.retention.index() != spec.retention.index()) {
      return refused("retention", fmt::format("{} and {}", kind_of(merged), kind_of(spec)),
                     "one kind in all layers of a group");
    }
    if (const auto* window = std::get_if<KeepWindow>(&spec.retention)) {
      const int other = std::get<KeepWindow>(merged.retention).tokens;
      if (window->tokens == other) continue;
      return refused("sliding_window", fmt::format("{} and {}", other, window->tokens),
                     "the same window in all layers of a group");
    }
    // Layers that free nothing may share a group with one window and with none (6.4).
    const int window = std::get<KeepAll>(spec.retention).sliding_window;
    int& known = std::get<KeepAll>(merged.retention).sliding_window;
    if (window != 0 && known != 0 && window != known) {
      return refused("sliding_window", fmt::format("{} and {}", known, window),
                     "the same window in all layers of a group");
    }
    if (known == 0) known = window;
  }
  return {.spec = merged};
}

}  // namespace fovea
