// SPDX-License-Identifier: Apache-2.0
// A tiny model with a cache, stepped by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "model.h"
#include "requests.h"
#include "sequence_cache.h"
#include "tiny_transformer.h"

namespace fovea::engine::test {

// A loaded model with a cache; it owns what the model points into.
class Loaded {
 public:
  explicit Loaded(const TinyModel& model, DType dtype = DType::kF32, int workers = 2,
                  const Preference& backends = {})
      : bytes_(model.bytes()), file_(GgufFile::parse(bytes_, "tiny.gguf")), pool_(workers) {
    model_ = load_model(file_, {.attention = {.dtype = dtype, .block_size = 4},
                                .max_batch_tokens = 40,
                                .backends = backends,
                                .executor = &pool_});
    const CacheOptions options{
        .num_blocks = 3 * model.context,  // blocks of 4, for up to four groups
        .max_num_reqs = 3,
        .max_batch_tokens = 40,
        .max_model_len = model.context};
    cache_.emplace(model_->layers(), options, Context{&pool_});
    for (int i = 0; i < 3; ++i) requests_.emplace_back(*cache_, "");
    known_.resize(3);
  }

  // The next tokens of each request (none: it takes no part), then logits of all rows.
  std::vector<std::vector<float>> step(const std::vector<Tokens>& parts) {
    Tokens tokens;
    std::vector<std::int32_t> positions;
    std::vector<CachedPart> cached;
    std::vector<RequestLengths> lengths;
    std::vector<int> rows;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (parts[r].empty()) continue;
      const int begin = computed_[r], count = static_cast<int>(parts[r].size());
      BlockCopies copies(cache_->groups().size());
      EXPECT_TRUE(requests_[r].prepare(begin + count, copies));
      cached.push_back({requests_[r].blocks(), begin, begin + count});
      lengths.push_back({count, begin + count});
      for (int i = 0; i < count; ++i) {
        rows.push_back(static_cast<int>(tokens.size()));
        tokens.push_back(parts[r][static_cast<std::size_t>(i)]);
        positions.push_back(begin + i);
      }
      computed_[r] += count;
      known_[r].insert(known_[r].end(), parts[r].begin(), parts[r].end());
    }
    steps_.resize(model_->layers().size());
    cache_->plan(cached, batch_.set(lengths), steps_);
    model_->forward({tokens, positions, steps_});
    for (std::size_t r = 0; r < parts.size(); ++r)
      if (!parts[r].empty()) requests_[r].commit(known_[r]);
    const auto vocab = static_cast<std::size_t>(model_->vocab_size());
    std::vector<float> all(rows.size() * vocab);
    model_->logits(rows, all);
    std::vector<std::vector<float>> logits;
    for (std::size_t i = 0; i < rows.size(); ++i)
      logits.emplace_back(all.begin() + std::ptrdiff_t(i * vocab),
                          all.begin() + std::ptrdiff_t((i + 1) * vocab));
    return logits;
  }
  const Model& model() const { return *model_; }
  KVCache& cache() { return *cache_; }
  // Makes every block that no request owns unusable, the null block too. After a step.
  void poison_free_blocks() {
    std::set<BlockId> owned;
    for (const SequenceCache& request : requests_)
      for (const RequestBlocks& blocks : request.blocks())
        for (const BlockId block : blocks.blocks())
          if (block != 0) owned.insert(block);
    for (const LayerStep& step : steps_)
      for (const TensorView& view : {step.cache.keys, step.cache.values})
        for (BlockId block = 0; block < view.size(0); ++block)
          if (!owned.contains(block)) fill(view, block);
  }
  const SequenceCache& request(std::size_t r) const { return requests_[r]; }

 private:
  static void fill(const TensorView& view, BlockId block) {
    for (std::int64_t t = 0; t < view.size(1); ++t)
      for (std::int64_t h = 0; h < view.size(2); ++h)
        for (std::int64_t i = 0; i < view.size(3); ++i)
          view.data_as<float>()[block * view.stride(0) + t * view.stride(1) + h * view.stride(2) +
                                i * view.stride(3)] = NAN;
  }

  std::vector<std::byte> bytes_;
  GgufFile file_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  std::optional<KVCache> cache_;
  std::vector<SequenceCache> requests_;
  std::vector<Tokens> known_;
  std::vector<LayerStep> steps_;
  std::vector<int> computed_ = std::vector<int>(3);
  HostBatch batch_{3};
};

inline Tokens some_tokens(int count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % 257));
  return tokens;
}

inline double worst(const std::vector<float>& got, const std::vector<double>& expected) {
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = std::abs(double{got[i]} - expected[i]);
    error = std::isnan(e) ? INFINITY : std::max(error, e);
  }
  return error;
}

// The whole prompt at once, every row.
inline void expect_right(const TinyModel& model, double tolerance, DType dtype = DType::kF32) {
  const Tokens tokens = some_tokens(23, 3);
  const auto expected = TinyTransformer(model).logits(tokens);
  const auto got = Loaded(model, dtype).step({tokens});
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT(worst(got[i], expected[i]), tolerance);
}

}  // namespace fovea::engine::test
