// SPDX-License-Identifier: Apache-2.0
// What a soak test asks an engine for: random models, options and requests, the same for a seed on
// every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "requests.h"
#include "tiny_model.h"

namespace fovea::engine::test {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  // Both ends included. Not a distribution of the standard library: those differ between libraries.
  int between(int low, int high) {
    const auto range = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<int>(random_() % range);
  }
  bool one_in(int n) { return between(1, n) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(between(0, static_cast<int>(all.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

// A token that makes every number behind it a NaN, where there is one: its requests fail, and what
// they leave in the cache's memory must not reach others.
constexpr TokenId kPoison = 200;

inline TinyModel random_model(Dice& dice, bool gemma) {
  TinyModel model;
  model.gemma = gemma;
  if (gemma) {
    model.window = dice.between(1, 30);
    model.pattern = dice.between(1, 3);
  }
  model.layers = dice.between(1, 3);
  model.kv_heads = dice.between(1, 3);
  model.heads = model.kv_heads * dice.between(1, 3);
  model.head_size = dice.between(3, 20);
  model.rotated = 2 * dice.between(1, model.head_size / 2);
  model.width = dice.between(8, 40);
  model.ffn = dice.between(8, 60);
  model.context = dice.between(40, 48);
  model.own_output = dice.one_in(2);
  model.seed = static_cast<unsigned>(dice.between(1, 1 << 30));
  model.fill();
  // The less a layer adds, the more the next token is a function of the last one: such models
  // repeat themselves, so that drafts are right now and then.
  const float share = dice.one_in(4) ? 1 : 0.2F;
  for (auto& [name, values] : model.tensors)
    if (gemma ? name.find(".post_") != std::string::npos
              : name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight"))
      for (float& value : values) value *= share;
  if (!model.own_output) return model;  // says its last token again and again
  // Takes turns between two neighbours.
  const auto width = static_cast<std::size_t>(model.width);
  std::vector<float>& embedding = model.tensors["token_embd.weight"];
  std::vector<float>& output = model.tensors["output.weight"];
  for (std::size_t t = 0; t < 256; ++t)
    std::copy_n(embedding.begin() + std::ptrdiff_t(t * width), width,
                output.begin() + std::ptrdiff_t((t ^ 1) * width));
  embedding[std::size_t{kPoison} * width] = std::numeric_limits<float>::quiet_NaN();
  return model;
}

// Without kv_blocks, which depend on the requests.
inline EngineOptions random_options(Dice& dice, bool prefix_cache) {
  EngineOptions options = f32_options();
  options.block_size = dice.one_in(2) ? dice.between(1, 4) : dice.between(1, 16);
  options.max_batch_tokens = dice.one_in(2) ? dice.between(1, 6) : dice.between(1, 64);
  options.max_num_reqs = dice.between(1, 12);
  options.prefix_cache = prefix_cache;
  options.threads = dice.between(1, 3);
  return options;
}

// What a request's callback does, once.
enum class Act : std::uint8_t {
  kNothing,
  kReturnFalse,  // of on_token
  kThrow,
  kCancelItself,
  kCancelAnother,
  kRaiseFlag,  // its own
  kSubmit,     // the next request
};

enum class From : std::uint8_t { kOnLogits, kOnToken, kOnText };

struct Plan {
  Request request = {};  // without callbacks and flag
  bool listens = false;  // has callbacks
  bool has_flag = false;
  Act act = Act::kNothing;
  From from = From::kOnToken;
  int at_call = 0;  // of this callback, all samples counted together
};

class Planner {
 public:
  static constexpr int kMaxSamples = 4;  // of a request

  Planner(Dice& dice, const TinyModel& model) : dice_(dice), model_(model) {
    // Short ones leave a cache that what is generated can fill.
    if (dice_.one_in(2)) longest_ = dice_.between(2, 12);
    for (int i = 0; i < 4; ++i) prefixes_.push_back(text(dice.between(2, std::min(longest_, 28))));
  }

  std::vector<Plan> plans(int count, const EngineOptions& options) {
    std::vector<Plan> all;
    for (int i = 0; i < count; ++i) {
      Plan plan;
      plan.request = request(options);
      // The same question again, and it must be the same answer.
      if (!all.empty() && dice_.one_in(6)) plan.request = dice_.one_of(all).request;
      plan.request.draft_lookup = dice_.one_in(3) ? 0 : dice_.between(1, 6);
      plan.has_flag = dice_.one_in(4);
      plan.listens = dice_.one_in(2);
      if (plan.listens && dice_.one_in(2)) choose_act(plan);
      all.push_back(std::move(plan));
    }
    return all;
  }

  // The least with which a request is taken in.
  std::int64_t blocks_for(const Request& request, const EngineOptions& options) const {
    const std::int64_t prompt = std::ssize(request.prompt);
    std::int64_t tokens = request.score ? prompt : 0;
    if (request.max_tokens > 0)
      tokens = std::clamp<std::int64_t>(prompt + request.max_tokens - 1, prompt,
                                        std::max<std::int64_t>(prompt, model_.context - 1));
    const auto blocks = [&](std::int64_t n) {
      return (n + options.block_size - 1) / options.block_size;
    };
    const int full = model_.gemma ? model_.layers / model_.pattern : model_.layers;
    const int windowed = model_.layers - full;
    if (windowed == 0) return blocks(tokens);
    // Groups of as many layers as there are of the rarer kind, the last one of each may be short.
    const int size = full == 0 ? windowed : std::min(full, windowed);
    const std::int64_t seen = blocks(model_.window - 1 + options.max_batch_tokens) + 1;
    return (full + size - 1) / size * blocks(tokens) +
           (windowed + size - 1) / size * std::min(blocks(tokens), seen);
  }

 private:
  TokenId byte() {
    const TokenId token = dice_.between(0, 255);
    return token == kPoison ? 0 : token;
  }

  // Repeats itself, so that there is something to draft from.
  std::vector<TokenId> text(int length) {
    std::vector<TokenId> pattern;
    for (int i = dice_.between(2, 6); i > 0; --i) pattern.push_back(byte());
    std::vector<TokenId> tokens;
    for (int i = 0; i < length; ++i)
      tokens.push_back(dice_.one_in(5) ? byte()
                                       : pattern[static_cast<std::size_t>(i) % pattern.size()]);
    return tokens;
  }

  std::vector<std::string> stops() {
    std::vector<std::string> all;
    for (int i = dice_.between(1, 20); i > 0; --i) {
      std::string stop(1, static_cast<char>(dice_.between(' ', '~')));
      // What a byte that is no character is shown as: such ones are frequent here.
      if (dice_.one_in(3)) stop = dice_.one_in(2) ? "\xEF\xBF\xBD" + stop : stop + "\xEF\xBF\xBD";
      all.push_back(std::move(stop));
    }
    return all;
  }

  Request request(const EngineOptions& options) {
    Request r;
    if (!dice_.one_in(5)) r.prompt = dice_.one_of(prefixes_);
    const std::vector<TokenId> tail =
        text(dice_.between(r.prompt.empty() ? 1 : 0, std::min(longest_, 14)));
    r.prompt.insert(r.prompt.end(), tail.begin(), tail.end());
    if (longest_ > model_.context && dice_.one_in(5))
      r.prompt = text(model_.context - dice_.between(0, 6));
    if (dice_.one_in(10)) r.prompt.push_back(kPoison);
    r.prompt.resize(std::min(r.prompt.size(), static_cast<std::size_t>(model_.context)));
    if (dice_.one_in(6)) r.prompt.resize(1);
    r.max_tokens = dice_.one_in(3) ? 12 : dice_.between(0, 12);
    if (r.max_tokens == 0 && dice_.one_in(4)) r.prompt.clear();
    if (dice_.one_in(3))
      r.num_samples = dice_.between(1, std::min(kMaxSamples, options.max_num_reqs));
    if (dice_.one_in(2)) {
      r.sampling.temperature = 0.1 * dice_.between(1, 30);
      r.sampling.seed = static_cast<std::uint64_t>(dice_.between(0, 1000));
      if (dice_.one_in(3)) r.sampling.top_k = dice_.between(1, 40);
      if (dice_.one_in(3)) r.sampling.top_p = 0.1 * dice_.between(1, 10);
      if (dice_.one_in(3)) r.sampling.min_p = 0.05 * dice_.between(0, 4);
    }
    if (dice_.one_in(4)) r.sampling.repetition_penalty = 0.5 + 0.1 * dice_.between(1, 10);
    if (dice_.one_in(4)) r.stop = stops();
    r.ignore_eos = dice_.one_in(3);
    if (dice_.one_in(4)) r.logprobs = dice_.between(1, 5);
    r.score = dice_.one_in(4);
    if (dice_.one_in(4)) r.cache_salt = dice_.one_in(2) ? "a" : "b";
    return r;
  }

  void choose_act(Plan& plan) {
    plan.act = static_cast<Act>(dice_.between(1, static_cast<int>(Act::kSubmit)));
    plan.from = static_cast<From>(dice_.between(0, static_cast<int>(From::kOnText)));
    if (plan.act == Act::kReturnFalse) plan.from = From::kOnToken;
    if (plan.act == Act::kRaiseFlag) plan.has_flag = true;
    plan.at_call = dice_.between(1, 8);
  }

  Dice& dice_;
  const TinyModel& model_;
  int longest_ = 1000;  // pieces of prompts
  std::vector<std::vector<TokenId>> prefixes_;
};

}  // namespace fovea::engine::test
