// SPDX-License-Identifier: Apache-2.0
#include "attention/capability_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "attention/way_out.h"

namespace fovea {
namespace {

using What = Need::What;

// Smallest and largest multiple of the base inside the bounds; empty if first > last.
struct Ends {
  std::int64_t first, last;
};
Ends ends_of(const Multiples& m) {
  if (m.base <= 0) return {1, 0};
  const std::int64_t base = m.base;
  const std::int64_t first = std::max<std::int64_t>((std::max(m.min, 1) + base - 1) / base, 1);
  return {first * base, m.max / base * base};
}

std::string text_of(const Multiples& m) {
  const auto [first, last] = ends_of(m);
  const bool open = m.max == INT_MAX;
  if (first == last) return fmt::format("{}", first);
  if (m.base == 1) {
    if (open) return first == 1 ? "any" : fmt::format("from {}", first);
    return fmt::format("{} to {}", first, last);
  }
  std::string text = fmt::format("multiples of {}", m.base);
  if (first != m.base) text += fmt::format(" from {}", first);
  if (!open) text += fmt::format(" to {}", last);
  return text;
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

std::string braces(const std::vector<std::string>& words) {
  return words.empty() ? "nothing" : fmt::format("{{{}}}", fmt::join(words, ", "));
}

// Names of the members of a set, for enumerations whose name_of knows all values up to `last`.
template <class E>
std::string names_of(FlagSet<E> set, E last) {
  std::vector<std::string> words;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const E e = static_cast<E>(i);
    if (set.has(e)) words.emplace_back(name_of(e));
  }
  return braces(words);
}

std::string text_of(const DeviceRange& d) {
  if (d.type == DeviceType::kCpu) {
    if (d.min_level == CpuLevel::kPortable) return "cpu";
    return fmt::format("cpu {} or better", name_of(d.min_level));
  }
  const auto [min, max] = d.compute_capability;
  if (min == max) return fmt::format("sm_{}", min);
  if (max == INT_MAX) return min <= 0 ? "any GPU" : fmt::format("sm_{} or higher", min);
  return fmt::format("sm_{} to sm_{}", min, max);
}

// Sizes that all rows offer in one member, one behind the other.
Sizes gather(const Rows& rows, Sizes Row::* member) {
  Sizes all;
  for (const Row& row : rows) all.insert(all.end(), (row.*member).begin(), (row.*member).end());
  return all;
}

std::string value_sizes_text(const Rows& rows) {
  const bool equal = std::any_of(rows.begin(), rows.end(),
                                 [](const Row& row) { return row.head_sizes_v.empty(); });
  const Sizes sizes = gather(rows, &Row::head_sizes_v);
  if (!equal) return text_of(sizes);
  return sizes.empty() ? "equal to head_size" : "equal to head_size or " + text_of(sizes);
}

std::string devices_text(const Rows& rows) {
  std::vector<std::string> words;
  for (const Row& row : rows) add_once(words, text_of(row.devices));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, " or "));
}

std::string layouts_text(const Rows& rows) {
  std::vector<std::string> words;
  for (const Row& row : rows)
    for (const CacheLayout layout : row.layouts) add_once(words, std::string(name_of(layout)));
  return braces(words);
}

std::string lengths_text(const Rows& rows) {
  std::vector<std::string> words;
  for (const Row& row : rows)
    if (!is_empty(row.query_len)) add_once(words, text_of(row.query_len));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

// The enumerators that a range of numbers stands for: "f32", "{f32, f16}".
template <class E>
std::string names_in(const Range& range, E last) {
  std::vector<std::string> words;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (contains(range, i)) words.emplace_back(name_of(static_cast<E>(i)));
  return words.size() == 1 ? words[0] : braces(words);
}

template <class E>
FlagSet<E> united(const Rows& rows, FlagSet<E> Row::* member) {
  FlagSet<E> all;
  for (const Row& row : rows) all = all | row.*member;
  return all;
}

std::string phrase_of(Need need, const Query& query) {
  const Problem& p = query.problem;
  switch (need.what) {
    case What::kFeature:
      return std::string(refusal_text(need.feature));
    case What::kDevice:
      return "compute capability not supported";
    case What::kAttnType:
      return fmt::format("attention type {} not supported", name_of(p.attn_type));
    case What::kHeadSizeV:
      return fmt::format("value head size {} with head size {} not supported", p.head_size_v,
                         p.head_size);
    case What::kGroupSize:
      return fmt::format("{} query heads per KV head not supported", wanted_text(need, query));
    case What::kOutputDType:
      return "output dtype not supported";
    case What::kLayout:
      return "KV layout not supported";
    default:
      return field_of(need) + " not supported";
  }
}

}  // namespace

std::string text_of(const Sizes& sizes) {
  std::vector<std::string> single, runs;
  for (const Multiples& m : sizes) {
    const auto [first, last] = ends_of(m);
    if (first > last) continue;
    std::string text = text_of(m);
    if (text == "any") return text;
    add_once(first == last ? single : runs, std::move(text));
  }
  if (single.empty() && runs.empty()) return "nothing";
  if (!single.empty()) runs.insert(runs.begin(), single.size() == 1 ? single[0] : braces(single));
  return fmt::format("{}", fmt::join(runs, " or "));
}

std::string text_of(const Range& range) {
  if (range.max == INT_MAX) return fmt::format("{}..∞", range.min);
  if (range.min == range.max) return fmt::format("{}", range.min);
  return fmt::format("{}..{}", range.min, range.max);
}

std::string field_of(Need need) {
  switch (need.what) {
    case What::kHeadSize:
      return "head_size";
    case What::kDType:
      return "dtype";
    case What::kKVDType:
      return "kv_cache_dtype";
    case What::kBlockSize:
      return "block_size";
    case What::kFeature:
      return std::string(name_of(need.feature));
    case What::kDevice:
      return "compute_capability";
    case What::kAttnType:
      return "attn_type";
    case What::kHeadSizeV:
      return "head_size_v";
    case What::kGroupSize:
      return "num_heads";
    case What::kOutputDType:
      return "output_dtype";
    case What::kLayout:
      return "layout";
    case What::kQueryLen:
      return "query_len";
  }
  return "unknown";
}

std::string wanted_text(Need need, const Query& query) {
  const Problem& p = query.problem;
  switch (need.what) {
    case What::kHeadSize:
      return std::to_string(p.head_size);
    case What::kDType:
      return std::string(name_of(p.dtype));
    case What::kKVDType:
      return std::string(name_of(p.kv_dtype));
    case What::kBlockSize:
      return std::to_string(p.block_size.tokens);
    case What::kFeature:
      return "on";
    case What::kDevice:
      return name_of(query.device);
    case What::kAttnType:
      return std::string(name_of(p.attn_type));
    case What::kHeadSizeV:
      return std::to_string(p.head_size_v);
    case What::kGroupSize:
      return group_size(p) > 0 ? std::to_string(group_size(p))
                               : fmt::format("{}/{}", p.num_heads, p.num_kv_heads);
    case What::kOutputDType:
      return std::string(name_of(p.output_dtype));
    case What::kLayout:
      return p.layout ? std::string(name_of(*p.layout)) : "any";
    case What::kQueryLen:
      return text_of(p.query_len);
  }
  return "";
}

std::string supported_text(Need need, const Rows& rows) {
  switch (need.what) {
    case What::kHeadSize:
      return text_of(gather(rows, &Row::head_sizes));
    case What::kDType:
      return names_of(united(rows, &Row::dtypes), DType::kBool);
    case What::kKVDType:
      return names_of(united(rows, &Row::kv_dtypes), KVDType::kFp8DsMla);
    case What::kBlockSize:
      return text_of(gather(rows, &Row::block_sizes));
    case What::kFeature:
      return "off";
    case What::kDevice:
      return devices_text(rows);
    case What::kAttnType:
      return names_of(united(rows, &Row::attn_types), AttentionType::kEncoderDecoder);
    case What::kHeadSizeV:
      return value_sizes_text(rows);
    case What::kGroupSize:
      return text_of(gather(rows, &Row::group_sizes));
    case What::kOutputDType: {
      const FlagSet<DType> more = united(rows, &Row::output_dtypes);
      return more.empty() ? "that of the query"
                          : "that of the query or " + names_of(more, DType::kBool);
    }
    case What::kLayout:
      return layouts_text(rows);
    case What::kQueryLen:
      return lengths_text(rows);
  }
  return "";
}

Reason reason_of(Need need, const Rows& rows, const Query& query) {
  return {field_of(need), wanted_text(need, query), supported_text(need, rows),
          way_out_of(need, rows, query), phrase_of(need, query)};
}

std::string wanted_text(const Term& term, const Query& query) {
  const Need need = need_of(term);
  if (need.what == What::kFeature)
    return fmt::format("{} {}", field_of(need),
                       query.problem.features.has(need.feature) ? "on" : "off");
  return fmt::format("{} {}", field_of(need), wanted_text(need, query));
}

std::string supported_text(const Term& term) {
  const Need need = need_of(term);
  const std::string field = field_of(need);
  const Range& in = term.in;
  switch (need.what) {
    case What::kFeature:
      return fmt::format("{} {}", field, contains(in, 0) ? "on" : "off");
    case What::kDType:
      return fmt::format("{} other than {}", field, names_in(in, DType::kBool));
    case What::kKVDType:
      return fmt::format("{} other than {}", field, names_in(in, KVDType::kFp8DsMla));
    case What::kAttnType:
      return fmt::format("{} other than {}", field, names_in(in, AttentionType::kEncoderDecoder));
    default:
      break;
  }
  if (in.min <= 1) return fmt::format("{} above {}", field, in.max);
  if (in.max == INT_MAX) return fmt::format("{} below {}", field, in.min);
  if (in.min == in.max) return fmt::format("{} other than {}", field, in.min);
  return fmt::format("{} below {} or above {}", field, in.min, in.max);
}

}  // namespace fovea
