// SPDX-License-Identifier: Apache-2.0
// Words and names of the cache's storage formats.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/words.h"
#include "fovea/kv/spec.h"

namespace fovea {
namespace {

struct Word {
  std::string_view word;
  KVDType format;
};
// The first word of a format is its name.
constexpr std::array kWords = {
    Word{"f32", KVDType::kF32},
    Word{"float32", KVDType::kF32},
    Word{"float", KVDType::kF32},
    Word{"f16", KVDType::kF16},
    Word{"float16", KVDType::kF16},
    Word{"half", KVDType::kF16},
    Word{"bf16", KVDType::kBF16},
    Word{"bfloat16", KVDType::kBF16},
    Word{"fp8_e4m3", KVDType::kFp8E4M3},
    Word{"fp8", KVDType::kFp8E4M3},
    Word{"fp8_e5m2", KVDType::kFp8E5M2},
    Word{"int8_per_token_head", KVDType::kInt8PerTokenHead},
    Word{"int8", KVDType::kInt8PerTokenHead},
    Word{"fp8_per_token_head", KVDType::kFp8PerTokenHead},
    Word{"int4_per_token_head", KVDType::kInt4PerTokenHead},
    Word{"int4", KVDType::kInt4PerTokenHead},
    Word{"nvfp4", KVDType::kNvfp4},
    Word{"nvfp4_4over6", KVDType::kNvfp4FourOverSix},
    Word{"fp8_ds_mla", KVDType::kFp8DsMla},
};

constexpr std::array kAccepted = [] {
  std::array<std::string_view, kWords.size() + 1> words{"auto"};
  std::transform(kWords.begin(), kWords.end(), words.begin() + 1,
                 [](const Word& w) { return w.word; });
  return words;
}();

// Formats that other software knows and that are not built here, so that a user learns that the
// word is right but the format is missing on purpose.
bool is_left_out(std::string_view word) {
  return word == "fp8_inc" || word == "nvfp4_ds_mla" || word == "ultraquant_4bit" ||
         word.starts_with("turboquant_") || word.find("fnuz") != std::string_view::npos;
}

}  // namespace

std::string_view name_of(KVDType t) {
  const auto* found =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.format == t; });
  return found != kWords.end() ? found->word : "invalid";
}

KVDType plain_kv_dtype(DType t) {
  switch (t) {
    case DType::kF32:
      return KVDType::kF32;
    case DType::kF16:
      return KVDType::kF16;
    case DType::kBF16:
      return KVDType::kBF16;
    default:
      throw ConfigError("kv_cache_dtype", name_of(t), "f32, f16, bf16",
                        "choose the cache's format by name");
  }
}

std::optional<DType> plain_dtype(KVDType t) {
  switch (t) {
    case KVDType::kF32:
      return DType::kF32;
    case KVDType::kF16:
      return DType::kF16;
    case KVDType::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

KVDType parse_kv_dtype(std::string_view word, DType model_dtype) {
  if (word == "auto") return plain_kv_dtype(model_dtype);
  const auto* found =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.word == word; });
  if (found != kWords.end()) return found->format;
  const std::string accepted = fmt::format("{}", fmt::join(kAccepted, ", "));
  constexpr std::string_view kAuto = "auto stores the type of keys and values";
  if (is_left_out(word)) {
    throw ConfigError(ConfigError::Kind::kUnsupported,
                      {Reason{.field = "kv_cache_dtype",
                              .wanted = std::string(word),
                              .supported = accepted,
                              .way_out = fmt::format(
                                  "{} is left out of this library on purpose; {}", word, kAuto)}});
  }
  throw ConfigError("kv_cache_dtype", word.empty() ? "an empty word" : word, accepted,
                    fmt::format("{}{}", did_you_mean(word, kAccepted), kAuto));
}

}  // namespace fovea
