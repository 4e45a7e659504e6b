// SPDX-License-Identifier: Apache-2.0
#include "call_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

#include "call_words.h"
#include "number.h"

namespace fovea::conformance {

namespace {
constexpr int kMaxHeads = 1 << 16, kMaxHeadSize = 1 << 16, kMaxLayers = 1 << 16;
constexpr int kMaxBlockTokens = 1 << 20, kMaxPaddingRows = 1 << 16, kMaxWorkers = 1024;
constexpr std::int64_t kMaxRowElements = 1 << 24;
constexpr std::int64_t kMaxTokenStride = std::int64_t{1} << 40;
constexpr std::size_t kMaxRequests = 1 << 14;

std::string text_of(const Request& r) { return fmt::format("[{}, {}]", r.query_len, r.kv_len); }

void check_choices(const Call& call, Against& against) {
  const auto need_word = [&](const char* field, auto given) {
    if (word_of(given).empty())
      against.add(field, static_cast<int>(given), "a number that has a name");
  };
  need_word("layer.dtype", call.problem.dtype);
  need_word("layer.kv_dtype", call.problem.kv_dtype);
  need_word("layer.output_dtype", call.problem.out_dtype);
  need_word("cache.layout", call.layout);
  need_word("cache.form", call.cache_form);
  need_word("placement.strided", call.strided);
  need_word("outputs.lse_base", call.lse_base);
  need_word("outputs.lse_layout", call.lse_layout);
  need_word("origin.relation", call.origin.relation);
  FlagSet<Poison> known;
  for (const Word<Poison>& w : kWords<Poison>) known.insert(w.value);
  if (!known.contains(call.poison)) against.add("poison", "other members", "those of Poison");
}

void check_layer(const Call& call, Against& against) {
  const Case& c = call.problem;
  against.need_range("layer.num_heads", c.num_heads, 1, kMaxHeads);
  against.need_range("layer.num_kv_heads", c.num_kv_heads, 1, kMaxHeads);
  against.need_range("layer.head_size", c.head_size, 1, kMaxHeadSize);
  against.need_range("layer.head_size_v", c.head_size_v, 1, kMaxHeadSize);
  if (c.num_kv_heads > 0 && c.num_heads % c.num_kv_heads != 0)
    against.add("layer.num_kv_heads", c.num_kv_heads,
                fmt::format("a divisor of num_heads = {}", c.num_heads));
  if (row_elements(c) > kMaxRowElements)
    against.add("layer.head_size", fmt::format("{} elements in a row of heads", row_elements(c)),
                fmt::format("at most {}", kMaxRowElements));
  if (!std::isfinite(c.scale)) against.add("layer.scale", c.scale, "a finite number");
  if (!std::isfinite(c.soft_cap) || c.soft_cap < 0)
    against.add("layer.logits_soft_cap", c.soft_cap, "0 for none, or a finite number above it");
  if (!c.causal && !call.non_causal)
    against.add("layer.non_causal", "false", "true, as causal is false");
  if (c.window < 0)
    against.add("layer.sliding_window", c.window, "0 for none, or 1 and more tokens");
}

void check_placement(const Call& call, Against& against) {
  against.need_range("cache.kernel_block_size", call.block_size, 1, kMaxBlockTokens);
  against.need_range("cache.kernel_blocks_per_manager_block", call.kernel_blocks_per_manager_block,
                     1, kMaxBlockTokens);
  if (manager_block_tokens(call) > kMaxBlockTokens)
    against.add("cache.kernel_blocks_per_manager_block",
                fmt::format("{} tokens in a manager block", manager_block_tokens(call)),
                fmt::format("at most {}", kMaxBlockTokens));
  against.need_range("cache.num_layers", call.num_layers, 1, kMaxLayers);
  if (call.layer < 0 || call.layer >= call.num_layers)
    against.add("cache.layer", call.layer,
                fmt::format("0 or more, below num_layers = {}", call.num_layers));
  against.need_range("placement.padding_rows", call.padding_rows, 0, kMaxPaddingRows);
  const std::int64_t stride = call.token_stride, least = row_elements(call.problem);
  if (stride != 0 && (stride < least || stride > kMaxTokenStride))
    against.add(
        "placement.token_stride", stride,
        fmt::format("0, or {} (the widest row of q, k, v and out) to {}", least, kMaxTokenStride));
  if (stride != 0 && call.strided != Strided::kNone)
    against.add("placement.token_stride", stride,
                fmt::format("0, as {} has other strides (strided)", name_of(call.strided)));
  if (call.flat && call.head_major)
    against.add("placement.head_major", "true with flat", "false: heads of a flat row are dense");
  against.need_range("execution.threads", call.num_workers, 1, kMaxWorkers);
}

// No two elements share an address: heads lie in tokens, or tokens in heads.
void check_strides(const Call& call, Against& against) {
  const Case& c = call.problem;
  std::int64_t rows = call.padding_rows;
  for (const Request& r : c.requests) rows += r.query_len;
  const auto look = [&](Strided tensor, const Strides& given, std::int64_t heads,
                        std::int64_t size) {
    if (given == Strides()) return;
    const std::string field = fmt::format("placement.{}_strides", name_of(tensor));
    const std::string text = fmt::format("[{}, {}]", given.token, given.head);
    const std::int64_t most = kMaxTokenStride;
    if (given.token < 0 || given.head < 0 || given.token > most || given.head > most)
      return against.add(field, text, fmt::format("two numbers from 0 to {}", most));
    const std::int64_t head = given.head != 0 ? given.head : size;
    const std::int64_t token = given.token != 0 ? given.token : heads * head;
    const bool heads_in_tokens = head >= size && token >= (heads - 1) * head + size;
    // In a double: the product may be out of range, and is then beyond every stride.
    const double behind = static_cast<double>(rows - 1) * static_cast<double>(token);
    const bool tokens_in_heads = token >= size && static_cast<double>(head - size) >= behind;
    if (call.flat && head != size)
      return against.add(field, text, fmt::format("a head stride of 0 or {} with flat", size));
    if (!heads_in_tokens && !tokens_in_heads)
      return against.add(
          field, text,
          fmt::format("strides with which {} rows of {} heads of {} lie apart", rows, heads, size));
    if (call.strided == tensor || call.token_stride != 0)
      against.add(field, text, "[0, 0] beside strided or token_stride, which say the same");
  };
  look(Strided::kQ, call.strides.q, c.num_heads, c.head_size);
  look(Strided::kK, call.strides.k, c.num_kv_heads, c.head_size);
  look(Strided::kV, call.strides.v, c.num_kv_heads, c.head_size_v);
  look(Strided::kOut, call.strides.out, c.num_heads, c.head_size_v);
  const std::int64_t lse = call.strides.lse;
  if (lse == 0) return;
  const std::int64_t least = call.lse_layout == LseLayout::kHeadsTokens ? rows : c.num_heads;
  if (!call.return_lse) return against.add("placement.lse_stride", lse, "0, as there is no LSE");
  against.need_range("placement.lse_stride", lse, std::max<std::int64_t>(least, 1),
                     kMaxTokenStride);
}

void check_requests(const Call& call, Against& against) {
  const std::vector<Request>& requests = call.problem.requests;
  if (requests.size() > kMaxRequests)
    against.add("requests", fmt::format("{} requests", requests.size()),
                fmt::format("at most {}", kMaxRequests));
  std::int64_t queries = call.padding_rows, keys = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].query_len < 0 || requests[r].kv_len < 0)
      return against.add(fmt::format("requests[{}]", r), text_of(requests[r]), "lengths from 0 on");
    queries += requests[r].query_len;
    keys += requests[r].kv_len;
  }
  if (const std::int64_t most = std::max(queries, keys); most > INT_MAX)
    against.add("requests", fmt::format("{} tokens", most), fmt::format("at most {}", INT_MAX));
}

// The parts of each request follow each other and are together the request.
void check_steps(const Call& call, Against& against) {
  const std::vector<Request>& requests = call.problem.requests;
  if (call.steps.empty()) return;
  if (std::max<std::size_t>(requests.size(), 1) * call.steps.size() > kMaxListed)
    return against.add("steps", fmt::format("{} steps", call.steps.size()),
                       fmt::format("at most {} requests in all of them", kMaxListed));
  std::vector<int> ends;  // of each request's parts so far
  ends.reserve(requests.size());
  for (const Request& r : requests) ends.push_back(r.kv_len - r.query_len);
  for (std::size_t s = 0; s < call.steps.size(); ++s) {
    const std::string path = fmt::format("steps[{}]", s);
    if (!against.need_one_per_request(path, call, call.steps[s])) return;
    for (std::size_t r = 0; r < ends.size(); ++r) {
      const Request& part = call.steps[s][r];
      const std::int64_t begin = ends[r], end = begin + part.query_len,
                         left = requests[r].kv_len - begin;
      // Queries before position 0 come with the first one behind them: no part ends before it.
      const std::int64_t kv_len = part.query_len == 0 ? std::max<std::int64_t>(begin, 0) : end;
      if (part.query_len < 0 || part.query_len > left || kv_len < 0 || part.kv_len != kv_len)
        return against.add(fmt::format("{}[{}]", path, r), text_of(part),
                           fmt::format("[n, n + {}] with an n up to {}", begin, left));
      ends[r] = static_cast<int>(end);
    }
  }
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (ends[r] != requests[r].kv_len)
      return against.add("steps", fmt::format("request {} up to position {}", r, ends[r]),
                         fmt::format("all of it, up to {}", requests[r].kv_len));
  }
}

void check_streams(const Call& call, Against& against) {
  if (call.streams.empty() || !against.need_one_per_request("streams", call, call.streams)) return;
  std::vector<int> sorted = call.streams;
  std::ranges::sort(sorted);
  if (sorted.front() < 0) against.add("streams", sorted.front(), "numbers from 0 on");
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    against.add("streams", fmt::format("{} twice", *twice), "another number for each request");
}

// Numbers stay finite in the types that hold them: those of the layer, for k and v the cache's too.
class RuleCheck {
 public:
  RuleCheck(const Call& call, Against& against, std::string field)
      : call_(call), against_(against), field_(std::move(field)), is_q_(field_ == "tensors.q") {
    const Case& c = call.problem;
    const int size = field_ == "tensors.v" ? c.head_size_v : c.head_size;
    token_elements_ = std::int64_t{is_q_ ? c.num_heads : c.num_kv_heads} * size;
  }

  void operator()(const Normal& /*rule*/) const {}
  void operator()(const Constant& rule) const {
    if (!is_storable(rule.value)) refuse(field_ + ".value", rule.value);
  }
  void operator()(const Index& /*rule*/) const {
    std::int64_t last = 0;
    for (const Request& r : call_.problem.requests) last = std::max(last, num_tokens(r) - 1);
    if (!is_storable(static_cast<double>(last))) refuse(field_, static_cast<double>(last));
  }
  void operator()(const Explicit& rule) const {
    if (!against_.need_one_per_request(field_, call_, rule.requests)) return;
    for (std::size_t r = 0; r < rule.requests.size(); ++r) {
      const std::vector<double>& values = rule.requests[r];
      // Sizes and lengths are in range: at most 2^24 elements a token and 2^31 tokens.
      const std::int64_t elements = token_elements_ * num_tokens(call_.problem.requests[r]);
      const std::string path = fmt::format("{} of request {}", field_, r);
      if (std::ssize(values) != elements)
        return against_.add(path, fmt::format("{} numbers", values.size()),
                            fmt::format("{}", elements));
      const auto wrong = std::ranges::find_if_not(values, [&](double x) { return is_storable(x); });
      if (wrong != values.end())
        return refuse(fmt::format("{}, element {}", path, wrong - values.begin()), *wrong);
    }
  }

 private:
  std::int64_t num_tokens(const Request& r) const { return is_q_ ? r.query_len : r.kv_len; }
  bool is_storable(double x) const {
    const double given = round_to(call_.problem.dtype, x);
    return std::isfinite(is_q_ ? given : round_to(call_.problem.kv_dtype, given));
  }
  void refuse(const std::string& where, double x) const {
    const Case& c = call_.problem;
    against_.add(where, x,
                 fmt::format("a number that is finite in {}{}{}", name_of(c.dtype),
                             is_q_ ? "" : " and ", is_q_ ? "" : name_of(c.kv_dtype)));
  }

  const Call& call_;
  Against& against_;
  std::string field_;
  bool is_q_;
  std::int64_t token_elements_ = 0;
};
}  // namespace

namespace {
enum class Numbers : std::uint8_t { kThere, kStillInFile };

void check(const Call& call, Numbers numbers) {
  Against against;
  check_choices(call, against);
  check_layer(call, against);
  check_placement(call, against);
  check_requests(call, against);
  if (against.reasons.empty()) {  // all else counts on that
    check_strides(call, against);
    check_steps(call, against);
    check_streams(call, against);
    const auto check_rule = [&](const Rule& rule, const char* field) {
      if (numbers == Numbers::kStillInFile && std::holds_alternative<Explicit>(rule)) return;
      std::visit(RuleCheck(call, against, field), rule);
    };
    check_rule(call.q, "tensors.q");
    check_rule(call.k, "tensors.k");
    check_rule(call.v, "tensors.v");
    check_cache(call, against);
  }
  if (!against.reasons.empty()) throw InputError(std::move(against.reasons));
}
}  // namespace

void check(const Call& call) { check(call, Numbers::kThere); }

void check_all_but_explicit_numbers(const Call& call) { check(call, Numbers::kStillInFile); }

}  // namespace fovea::conformance
