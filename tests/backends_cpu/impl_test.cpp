// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/impl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/table.h"
#include "backends_cpu/fixture.h"
#include "fovea/base/error.h"

namespace fovea::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::string name_of_level(const ::testing::TestParamInfo<CpuLevel>& tested) {
  return std::string(name_of(tested.param));
}

class CpuImpl : public ::testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, CpuImpl, ::testing::ValuesIn(runnable_levels()), name_of_level);

// From the definition, in double.
struct Row {
  std::vector<double> out;
  double lse;
};
Row exact(const Fixture& f, int req, int token, int head) {
  const Scene& s = f.scene();
  const RequestLengths r = s.requests[static_cast<std::size_t>(req)];
  int first = 0;
  for (int i = 0; i < req; ++i) first += s.requests[static_cast<std::size_t>(i)].query_len;
  const int kv_head = head / (s.num_heads / s.num_kv_heads), q = r.seq_len - r.query_len + token;
  std::vector<double> weights;
  Row row{std::vector<double>(static_cast<std::size_t>(s.head_size_v), 0.0), 0};
  double sum = 0, most = -kInf;
  for (int k = 0; k < r.seq_len; ++k) {
    double x = -kInf;
    const bool in_window = s.window == 0 || (q - k < s.window && k - q < s.window);
    if (in_window && (!s.causal || k <= q)) {
      x = 0;
      for (int d = 0; d < s.head_size; ++d)
        x += double{f.query(first + token, head, d)} * double{f.key(req, k, kv_head, d)};
      x *= double{f.spec().scale};
      if (s.soft_cap > 0) x = s.soft_cap * std::tanh(x / s.soft_cap);
    }
    weights.push_back(x);
    most = std::max(most, x);
  }
  for (int k = 0; k < r.seq_len; ++k) {
    double& x = weights[static_cast<std::size_t>(k)];
    if (x == -kInf) continue;
    x = std::exp(x - most);
    sum += x;
    for (int d = 0; d < s.head_size_v; ++d)
      row.out[static_cast<std::size_t>(d)] += x * double{f.value(req, k, kv_head, d)};
  }
  for (double& x : row.out) x = sum == 0 ? 0 : x / sum;
  row.lse = most + std::log(sum);
  return row;
}

void expect_exact(const Fixture& f, const Written& w, double tolerance) {
  const Scene& s = f.scene();
  int token = 0;
  for (std::size_t r = 0; r < s.requests.size(); ++r)
    for (int t = 0; t < s.requests[r].query_len; ++t, ++token)
      for (int h = 0; h < s.num_heads; ++h) {
        const Row want = exact(f, static_cast<int>(r), t, h);
        const std::vector<float> got = f.row(w, token, h);
        for (std::size_t d = 0; d < got.size(); ++d)
          ASSERT_NEAR(double{got[d]}, want.out[d], tolerance)
              << r << ' ' << t << ' ' << h << ' ' << d;
        if (!s.return_lse) continue;
        const float lse =
            w.lse[static_cast<std::size_t>(h * f.batch().metadata().num_actual_tokens + token)];
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse, -kInf);
        } else {
          ASSERT_NEAR(double{lse}, want.lse, 4e-6);
        }
      }
}

Scene mixed() {
  return {.requests = {{1, 1}, {3, 130}, {0, 5}, {70, 70}, {4, 2}, {2, 0}, {1, 2100}},
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_size = 20,
          .head_size_v = 17,
          .block_size = 7};
}

TEST_P(CpuImpl, agrees_with_the_definition) {
  for (const int window : {0, 1, 40})
    for (const bool causal : {true, false})
      for (const float cap : {0.0F, 2.0F}) {
        Scene s = mixed();
        s.window = window;
        s.causal = causal;
        s.soft_cap = cap;
        const Fixture f(s);
        expect_exact(f, f.forward(GetParam(), nullptr), 1e-6);
      }
}

// With and without an LSE: computed in double and in float.
TEST_P(CpuImpl, agrees_with_the_definition_in_sixteen_bits) {
  for (const DType kv : {DType::kF16, DType::kBF16})
    for (const bool lse : {true, false}) {
      Scene s = mixed();
      s.kv_dtype = kv;
      s.return_lse = lse;
      const Fixture f(s);
      expect_exact(f, f.forward(GetParam(), nullptr), 3e-6);
      s.dtype = kv;
      const Fixture rounded(s);
      expect_exact(rounded, rounded.forward(GetParam(), nullptr),
                   kv == DType::kF16 ? 2e-3 : 1.6e-2);
    }
}

// Every level's own way of loading: everything that no request owns is NaN, behind short and long
// sequences, in blocks of any size; and head sizes that are no multiple of a vector, where the rest
// of a vector is another head's or NaN.
TEST_P(CpuImpl, case_B05_M23) {
  std::vector<Scene> scenes = {
      {.requests = {{1, 1}, {1, 3}}, .head_size = 64, .head_size_v = 64, .block_size = 128},
      {.requests = {{1, 32}, {1, 64}, {1, 96}, {1, 48}},
       .num_heads = 4,
       .num_kv_heads = 4,
       .head_size = 64,
       .head_size_v = 64,
       .block_size = 128},
      {.requests = {{2, 5}}, .causal = false},
      {.requests = {{2, 17}, {1, 65}, {1, 1}}, .causal = false},
      {.requests = {{1, 257}, {3, 129}}, .window = 60, .block_size = 64}};
  for (const int size : {1, 2, 3, 5, 7, 9, 15, 17, 24, 31, 33, 40, 65})
    scenes.push_back({.requests = {{2, 19}, {1, 66}},
                      .num_heads = 4,
                      .num_kv_heads = 2,
                      .head_size = size,
                      .head_size_v = 66 - size,
                      .block_size = 5});
  for (Scene scene : scenes) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const bool lse : {true, false}) {
        scene.kv_dtype = kv;
        scene.return_lse = lse;
        const Fixture f(scene);
        SCOPED_TRACE(std::string(name_of(kv)) + " " + std::to_string(scene.head_size));
        expect_exact(f, f.forward(GetParam(), nullptr), 3e-6);
      }
    }
  }
}

Scene split_scene(DType kv, bool lse) {
  return {.requests = {{1, 6000}, {5, 4000}, {40, 1500}, {1, 30}},
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_size = 24,
          .head_size_v = 40,
          .kv_dtype = kv,
          .return_lse = lse};
}

TEST_P(CpuImpl, threads_and_splits_do_not_change_a_bit) {
  for (const bool lse : {true, false}) {
    const Fixture f(split_scene(DType::kBF16, lse));
    const Written alone = f.forward(GetParam(), nullptr);
    for (const int threads : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      bool split = false;
      const auto builder = f.builder(&pool);
      const auto plan = f.plan(*builder);
      const AttentionMetadata& base = *plan;
      for (const Item& item : metadata_cast<Metadata>(base).items) split = split || item.split >= 0;
      EXPECT_EQ(split, threads > 1);
      EXPECT_EQ(f.forward(GetParam(), base), alone) << threads;
    }
  }
}

TEST_P(CpuImpl, blocks_and_layouts_do_not_change_a_bit) {
  Scene s = split_scene(DType::kF16, false);
  const Written first = Fixture(s).forward(GetParam(), nullptr);
  const std::vector<int> blocks = {1, 5, 64, 4096, 16, 7};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    s.block_size = blocks[i];
    s.layout = kAllCacheLayouts[i];
    s.placement = static_cast<unsigned>(i + 2);
    EXPECT_EQ(Fixture(s).forward(GetParam(), nullptr), first)
        << blocks[i] << ' ' << name_of(s.layout);
  }
}

// Each request alone, and each of its queries alone, gives the bits that it has in the batch.
TEST_P(CpuImpl, neighbours_and_chunks_do_not_change_a_bit) {
  for (const bool lse : {true, false}) {
    Scene s = split_scene(DType::kBF16, lse);
    s.requests = {{130, 1200}};
    s.window = 700;
    const Fixture whole(s);
    ThreadPool pool(2);
    const Written all = whole.forward(GetParam(), &pool);
    int token = 0;
    for (const int chunk : {1, 2, 13, 64, 50}) {
      Scene part = s;
      part.requests = {{chunk, 1200 - 130 + token + chunk}};
      const Fixture f(part);
      const Written w = f.forward(GetParam(), nullptr);
      for (int t = 0; t < chunk; ++t, ++token)
        for (int h = 0; h < s.num_heads; ++h)
          ASSERT_EQ(f.row(w, t, h), whole.row(all, token, h)) << token << ' ' << h;
    }
    EXPECT_EQ(token, 130);
  }
}

TEST_P(CpuImpl, one_plan_serves_calls_at_the_same_time) {
  const Fixture f(split_scene(DType::kBF16, true));
  ThreadPool pool(2);
  const auto builder = f.builder(&pool);
  const auto plan = f.plan(*builder);
  const Written alone = f.forward(GetParam(), nullptr);
  const Impl impl(f.spec(), kernels_for(GetParam()));
  std::vector<Fixture::Tensors> tensors;
  for (int i = 0; i < 3; ++i) tensors.push_back(f.tensors(plan->workspace_bytes));
  std::vector<std::thread> threads;
  for (const Fixture::Tensors& t : tensors)
    threads.emplace_back([&] {
      Stream stream;
      for (int i = 0; i < 3; ++i) impl.forward(*plan, f.args(t), stream);
    });
  for (std::thread& t : threads) t.join();
  for (const Fixture::Tensors& t : tensors) EXPECT_EQ(f.written(t), alone);
}

TEST_P(CpuImpl, extreme_logits) {
  // One key with the logit -46340.95: a finite stand-in for minus infinity would beat it.
  Scene s{.requests = {{1, 1}}, .head_size = 128, .head_size_v = 3};
  const Fixture f(s);
  std::vector<float> q(128, 64.0F), k(128, -64.0F), v(3, 1.0F);
  const std::vector<std::int32_t> table{0};
  const TensorView q_view(q.data(), DType::kF32, {1, 1, 128});
  const KVCacheView cache{.keys = {k.data(), DType::kF32, {1, 16, 1, 128}, {128, 128, 128, 1}},
                          .values = {v.data(), DType::kF32, {1, 16, 1, 3}, {3, 3, 3, 1}},
                          .block_size = {16}};
  const BlockTables tables{
      .block_table = {const_cast<std::int32_t*>(table.data()), DType::kI32, {1, 1}}};
  const auto builder = f.builder(nullptr);
  const auto plan = f.plan(*builder);
  const Fixture::Tensors t = f.tensors(plan->workspace_bytes);
  Stream stream;
  Impl(f.spec(), kernels_for(GetParam()))
      .forward(*plan,
               {.q = q_view,
                .cache = cache,
                .tables = tables,
                .out = t.out_view,
                .lse = &t.lse,
                .workspace = t.workspace.view()},
               stream);
  const Written w = f.written(t);
  EXPECT_EQ(f.row(w, 0, 0), (std::vector<float>{1, 1, 1}));
  EXPECT_NEAR(w.lse[0], -46340.951F, 4e-3F);
}

TEST_P(CpuImpl, lse_in_base_two_and_by_token) {
  const Fixture f(mixed());
  const Written natural = f.forward(GetParam(), nullptr);
  const auto builder = f.builder(nullptr);
  const auto plan = f.plan(*builder);
  Fixture::Tensors t = f.tensors(plan->workspace_bytes);
  const std::int64_t tokens = f.batch().metadata().num_actual_tokens;
  t.lse = {.data = {t.lse_memory.data(), DType::kF32, {tokens, 6}},
           .base = LseBase::k2,
           .layout = LseLayout::kTokensHeads};
  Stream stream;
  Impl(f.spec(), kernels_for(GetParam())).forward(*plan, f.args(t), stream);
  const Written two = f.written(t);
  EXPECT_EQ(two.out, natural.out);
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t h = 0; h < 6; ++h) {
      const float want = convert_lse(natural.lse[static_cast<std::size_t>(h * tokens + token)],
                                     LseBase::kE, LseBase::k2);
      ASSERT_EQ(two.lse[static_cast<std::size_t>(token * 6 + h)], want);
    }
}

TEST_P(CpuImpl, an_empty_batch_writes_nothing) {
  const Fixture f({.requests = {{0, 5}, {0, 0}}});
  EXPECT_TRUE(f.forward(GetParam(), nullptr).out.empty());
}

TEST(CpuImplChecks, refuses_plans_and_workspaces_that_do_not_fit) {
  const Fixture f(mixed());
  Scene other = mixed();
  other.window = 9;
  const auto builder = f.builder(nullptr);
  const auto plan = f.plan(*builder);
  const Fixture g(other);
  const Fixture::Tensors t = f.tensors(plan->workspace_bytes);
  const Fixture::Tensors small = f.tensors(plan->workspace_bytes - 1);
  const Written before = f.written(t);
  Stream stream;
  EXPECT_THROW(Impl(g.spec(), portable_kernels).forward(*plan, f.args(t), stream), InputError);
  const Impl impl(f.spec(), portable_kernels);
  EXPECT_THROW(impl.forward(*plan, f.args(small), stream), InputError);
  ForwardArgs none = f.args(t);
  none.workspace = {};
  EXPECT_THROW(impl.forward(*plan, none, stream), InputError);
  EXPECT_THROW(impl.forward(AttentionMetadata{}, f.args(t), stream), ContractError);
  EXPECT_EQ(f.written(t).out, before.out);
}

}  // namespace
}  // namespace fovea::cpu
