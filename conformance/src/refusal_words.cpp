// SPDX-License-Identifier: Apache-2.0
#include "refusal_words.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <stdexcept>

namespace fovea::conformance {

namespace {
bool has_word(std::string_view text, std::string_view word) {
  const auto is_part = [&](std::size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !is_part(at - 1)) && !is_part(at + word.size())) return true;
  }
  return false;
}

bool is_combination(const Reason& r) { return r.field == "combination"; }

bool says(const Reason& r, const Exclusion& exclusion) {
  if (!exclusion.why.empty() && r.phrase.find(exclusion.why) != std::string::npos) return true;
  return !exclusion.all_of.empty() &&
         std::all_of(exclusion.all_of.begin(), exclusion.all_of.end(),
                     [&](const Term& term) { return has_word(r.wanted, field_of(term)); });
}

// Whether a reason is that of this one row.
bool says(const Reason& r, fovea::Row row, const Problem& problem, const Device& device) {
  row.query_len = {};  // which the other rows may have
  const Support alone = validate({row}, problem, device);
  return !alone && std::all_of(alone.reasons.begin(), alone.reasons.end(), [&](const Reason& a) {
    if (!is_combination(a)) return has_word(r.wanted, a.field);
    return std::any_of(row.exclusions.begin(), row.exclusions.end(),
                       [&](const Exclusion& e) { return says(a, e) && says(r, e); });
  });
}
}  // namespace

bool names(const std::vector<Reason>& reasons, std::string_view field) {
  if (field.empty()) throw std::logic_error("a refusal is asked for a field without a name");
  return std::any_of(reasons.begin(), reasons.end(), [&](const Reason& r) {
    return has_word(r.field, field) || has_word(r.phrase, field);
  });
}

bool names_exclusion(const std::vector<Reason>& reasons, const Exclusion& exclusion) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Reason& r) { return is_combination(r) && says(r, exclusion); });
}

bool names_combination(const std::vector<Reason>& reasons, const Rows& rows, const Problem& problem,
                       const Device& device) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const Reason& r) {
    return is_combination(r) && std::any_of(rows.begin(), rows.end(), [&](const fovea::Row& row) {
             return says(r, row, problem, device);
           });
  });
}

std::string field_of(const Term& term) {
  switch (term.field) {
    case Field::kHeadSize:
      return "head_size";
    case Field::kHeadSizeV:
      return "head_size_v";
    case Field::kDType:
      return "dtype";
    case Field::kKVDType:
      return "kv_cache_dtype";
    case Field::kBlockSize:
      return "block_size";
    case Field::kGroupSize:
      return "num_heads";
    case Field::kAttnType:
      return "attn_type";
    case Field::kQueryLen:
      return "query_len";
    case Field::kFeature:
      return std::string(name_of(term.feature));
    case Field::kComputeCapability:
      return "compute_capability";
  }
  return "unknown";
}

}  // namespace fovea::conformance
