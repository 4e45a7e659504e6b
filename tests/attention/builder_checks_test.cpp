// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/builder_checks.h"

#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <string>
#include <vector>

#include "attention/fake_backend.h"
#include "fovea/attention/host_batch.h"

namespace fovea::testing {
namespace {

class Workers final : public Executor {
 public:
  explicit Workers(int count) : count_(count) {}
  int num_workers() const override { return count_; }
  void run(int, Task) override { throw std::logic_error("a check ran something"); }

 private:
  int count_;
};

BuilderOptions good() {
  return {.key = {.backend = "fake",
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .head_size = 8,
                  .head_size_v = 8,
                  .block_size = {4}},
          .bounds = {.max_num_reqs = 2, .max_num_tokens = 8, .max_model_len = 16}};
}

// The fields that are refused.
std::vector<std::string> refused(const BuilderOptions& options, const Context& context = {}) {
  std::vector<std::string> fields;
  try {
    check_builder(options, {plain_row()}, context);
  } catch (const ConfigError& e) {
    for (const Reason& r : e.reasons()) fields.push_back(r.field);
  }
  return fields;
}

using Fields = std::vector<std::string>;

TEST(BuilderChecks, TakesTheKeyOfALayer) {
  EXPECT_EQ(refused(good()), Fields{});
  BuilderOptions masked = good();
  masked.key.mask = {7, 0};
  EXPECT_EQ(refused(masked), Fields{});
}

TEST(BuilderChecks, RefusesKeysThatNoLayerHas) {
  const std::vector<std::pair<const char*, std::function<void(PlanKey&, int)>>> members = {
      {"key.num_heads", [](PlanKey& k, int v) { k.num_heads = v; }},
      {"key.num_kv_heads", [](PlanKey& k, int v) { k.num_kv_heads = v; }},
      {"key.head_size", [](PlanKey& k, int v) { k.head_size = v; }},
      {"key.head_size_v", [](PlanKey& k, int v) { k.head_size_v = v; }},
      {"key.block_size", [](PlanKey& k, int v) { k.block_size = {v}; }}};
  for (const auto& [field, set] : members) {
    for (const int value : {0, -1, INT_MIN}) {
      BuilderOptions bad = good();
      set(bad.key, value);
      EXPECT_EQ(refused(bad), Fields{field}) << value;
    }
  }
  BuilderOptions bad = good();
  bad.key.num_heads = 5;
  EXPECT_EQ(refused(bad), Fields{"key.num_kv_heads"});
  bad = good();
  bad.key.head_size_v = 9;  // the row wants equal sizes
  EXPECT_EQ(refused(bad), Fields{"key"});
  bad = good();
  bad.key.mask = {-2, -3};
  EXPECT_EQ(refused(bad), (Fields{"key.mask.left", "key.mask.right"}));
}

// Rows say yes first: a plan must not reach a backend that would leave a part of its mask out.
TEST(BuilderChecks, RefusesMasksThatNoRowKnows) {
  BuilderOptions chunked = good();
  chunked.key.mask = {.chunk = 8};
  EXPECT_EQ(refused(chunked), Fields{"key.mask.chunk"});
  chunked.key.mask = {.chunk = 8, .lookback = 2};
  EXPECT_EQ(refused(chunked), (Fields{"key.mask.chunk", "key.mask.lookback"}));
  chunked.key.mask = {.chunk = -1, .lookback = INT_MIN};
  EXPECT_EQ(refused(chunked), (Fields{"key.mask.chunk", "key.mask.lookback"}));
  BuilderOptions clamped = good();
  clamped.key.mask = {.left = 3, .right = 3, .clamp_spans = true};
  EXPECT_EQ(refused(clamped), Fields{"key.mask.clamp_spans"});

  Row all = plain_row();
  all.features = FlagSet<Feature>::all();
  EXPECT_NO_THROW(check_builder(clamped, {all}, {}));
  chunked.key.mask = {.chunk = 8, .lookback = 2};
  EXPECT_NO_THROW(check_builder(chunked, {all}, {}));
  chunked.key.mask = {.left = 7, .right = 7, .chunk = 8};  // chunks are their own window
  EXPECT_THROW(check_builder(chunked, {all}, {}), ConfigError);
  EXPECT_EQ(refused(chunked), (Fields{"key.mask.chunk", "key.mask.chunk"}));  // no row knows it too
}

TEST(BuilderChecks, NamesEverythingThatIsWrong) {
  Workers none(0);
  EXPECT_EQ(refused({}, {&none}),
            (Fields{"key.num_heads", "key.num_kv_heads", "key.head_size", "key.head_size_v",
                    "key.block_size", "max_num_reqs", "max_num_tokens", "max_model_len",
                    "executor.num_workers"}));
}

TEST(BuilderChecks, WorkersMustMakeSense) {
  for (const int count : {0, -1, kMaxWorkers + 1, INT_MAX}) {
    Workers workers(count);
    EXPECT_EQ(refused(good(), {&workers}), Fields{"executor.num_workers"}) << count;
  }
  Workers most(kMaxWorkers);
  EXPECT_EQ(refused(good(), {&most}), Fields{});
  EXPECT_EQ(num_workers({&most}), kMaxWorkers);
  EXPECT_EQ(num_workers({}), 1);
}

TEST(BuilderChecks, ABatchStaysInsideTheBounds) {
  const Bounds bounds = good().bounds;
  HostBatch batch(3);
  EXPECT_NO_THROW(check_batch(batch.set(std::vector<RequestLengths>{{7, 16}, {1, 1}}), bounds));
  const auto argument = [&](const CommonAttentionMetadata& b) {
    try {
      check_batch(b, bounds);
    } catch (const InputError& e) {
      return e.argument();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(argument(batch.set(std::vector<RequestLengths>(3, {1, 1}))), "num_reqs");
  EXPECT_EQ(argument(batch.set(std::vector<RequestLengths>{{9, 9}})), "num_actual_tokens");
  EXPECT_EQ(argument(batch.set(std::vector<RequestLengths>{{1, 17}})), "seq_lens");
  CommonAttentionMetadata elsewhere = batch.set(std::vector<RequestLengths>{{1, 1}});
  elsewhere.seq_lens =
      TensorView(elsewhere.seq_lens.data(), DType::kI32, {1}, DeviceId{DeviceType::kCuda, 0});
  EXPECT_EQ(argument(elsewhere), "seq_lens");
  elsewhere.num_reqs = -1;
  EXPECT_EQ(argument(elsewhere), "num_reqs");
}

}  // namespace
}  // namespace fovea::testing
