// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/fake_backend.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea {
namespace {

using testing::FakeBackend;
using testing::plain_row;

Problem problem(DType dtype = DType::kBF16) {
  Problem p;
  p.num_heads = 32;
  p.num_kv_heads = 8;
  p.head_size = p.head_size_v = 128;
  p.dtype = p.output_dtype = dtype;
  p.kv_dtype = plain_kv_dtype(dtype);
  p.block_size = {16};
  return p;
}
Device cpu(CpuLevel level) {
  Device d;
  d.cpu_level = level;
  return d;
}
Device gpu(int major, int minor) {
  Device d;
  d.id.type = DeviceType::kCuda;
  d.cc_major = major;
  d.cc_minor = minor;
  return d;
}

// A small world: two GPU backends, two CPU backends, ranks as real ones would have.
struct World {
  World() {
    Row general = plain_row();
    general.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
    general.kv_dtypes = {KVDType::kF32, KVDType::kF16, KVDType::kBF16};
    general.features = {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kLse,
                        Feature::kNonCausal};
    Row any_gpu = general, fast_gpu = general, oracle = general, amx = general, avx2 = general;
    any_gpu.devices = {.type = DeviceType::kCuda, .compute_capability = {80, INT_MAX}};
    any_gpu.rank = 20;
    fast_gpu.devices = {.type = DeviceType::kCuda, .compute_capability = {90, 90}};
    fast_gpu.dtypes = {DType::kF16, DType::kBF16};
    fast_gpu.features = {Feature::kLse};
    fast_gpu.head_sizes = {{64, 64, 64}, {128, 128, 128}};
    fast_gpu.block_sizes = {{16, 16}};
    fast_gpu.rank = 30;
    amx.devices.min_level = CpuLevel::kAmx;
    amx.dtypes = {DType::kBF16};
    amx.kv_dtypes = {KVDType::kBF16};
    amx.rank = 15;
    avx2.devices.min_level = CpuLevel::kAvx2;
    avx2.head_sizes = {{8, 8, 512}};
    avx2.rank = 10;
    backends.push_back(std::make_unique<FakeBackend>("oracle", Rows{oracle}));
    backends.push_back(std::make_unique<FakeBackend>("fast_cpu", Rows{avx2, amx}));
    backends.push_back(std::make_unique<FakeBackend>("any_gpu", Rows{any_gpu}));
    backends.push_back(std::make_unique<FakeBackend>("fast_gpu", Rows{fast_gpu}));
    for (const auto& b : backends) registry.add(*b);
  }
  std::vector<std::unique_ptr<FakeBackend>> backends;
  Registry registry;
};

std::string name_of_choice(const Choice& c) {
  return c.backend == nullptr ? "none" : std::string(c.backend->name());
}

TEST(Select, TableOfProblemsAndDevices) {
  const World world;
  struct Want {
    Device device;
    DType dtype;
    int head_size, block_size;
    FlagSet<Feature> features;
    const char* name;
    int rank;
  };
  const auto bf16 = DType::kBF16, f32 = DType::kF32, f16 = DType::kF16;
  const Want table[] = {
      {gpu(9, 0), bf16, 128, 16, {}, "fast_gpu", 30},
      {gpu(9, 0), f16, 64, 64, {Feature::kLse}, "fast_gpu", 30},
      {gpu(9, 0), bf16, 128, 8, {}, "any_gpu", 20},
      {gpu(9, 0), bf16, 96, 16, {}, "any_gpu", 20},
      {gpu(9, 0), f32, 128, 16, {}, "any_gpu", 20},
      {gpu(9, 0), bf16, 128, 16, {Feature::kSlidingWindow}, "any_gpu", 20},
      {gpu(8, 0), bf16, 128, 16, {}, "any_gpu", 20},
      {gpu(10, 0), bf16, 128, 16, {}, "any_gpu", 20},
      {gpu(7, 5), bf16, 128, 16, {}, "none", 0},
      {gpu(9, 0), bf16, 128, 16, {Feature::kSinks}, "none", 0},
      {cpu(CpuLevel::kAmx), bf16, 128, 16, {}, "fast_cpu", 15},
      {cpu(CpuLevel::kAmx), f32, 128, 16, {}, "fast_cpu", 10},
      {cpu(CpuLevel::kAvx512), bf16, 128, 16, {}, "fast_cpu", 10},
      {cpu(CpuLevel::kAvx2), bf16, 77, 16, {}, "oracle", 0},
      {cpu(CpuLevel::kPortable), bf16, 128, 16, {}, "oracle", 0},
      {cpu(CpuLevel::kAmx), bf16, 128, 16, {Feature::kAlibi}, "none", 0},
  };
  for (const Want& w : table) {
    Problem p = problem(w.dtype);
    p.head_size = p.head_size_v = w.head_size;
    p.block_size.tokens = w.block_size;
    p.features = w.features;
    const Choice choice = select(world.registry, p, w.device);
    EXPECT_EQ(name_of_choice(choice), w.name) << explain(choice, p, w.device);
    EXPECT_EQ(choice.considered.size(), 4U);
    for (const Considered& c : choice.considered) {
      if (c.backend == choice.backend) {
        EXPECT_EQ(c.rank, w.rank);
      } else if (!c.support) {
        EXPECT_EQ(c.rank, 0);
      }
    }
  }
}

std::vector<std::string> order_of(const Choice& choice) {
  std::vector<std::string> names;
  for (const Considered& c : choice.considered) names.emplace_back(c.backend->name());
  return names;
}
using Names = std::vector<std::string>;

TEST(Select, case_M17_AsksByFallingRankThenByName) {
  const FakeBackend b("b", {plain_row()}), a("a", {plain_row()}), none("none", {});
  Row high = plain_row();
  high.rank = 9;
  high.dtypes = {DType::kF16};
  const FakeBackend refused("z", {high});
  Registry registry;
  registry.add(none).add(b).add(refused).add(a);
  const Choice choice = select(registry, problem(DType::kF32), Device{});
  EXPECT_EQ(order_of(choice), (Names{"z", "a", "b", "none"}));
  EXPECT_EQ(name_of_choice(choice), "a");
}

// Two backends fit: which one is chosen is a number in their rows, whatever their names and the
// order of registration, and the explanation shows both numbers.
TEST(Select, case_M17_TheOrderIsDataAndExplainsItself) {
  Row low = plain_row(), high = plain_row();
  low.rank = 3;
  high.rank = 8;
  for (const bool wrapper_wins : {false, true}) {
    const FakeBackend wrapper("composite", {wrapper_wins ? high : low});
    const FakeBackend native("native", {wrapper_wins ? low : high});
    for (const bool wrapper_first : {false, true}) {
      Registry registry;
      registry.add(wrapper_first ? wrapper : native).add(wrapper_first ? native : wrapper);
      const Problem p = problem(DType::kF32);
      const Choice choice = select(registry, p, Device{});
      const std::string text = explain(choice, p, Device{});
      EXPECT_EQ(choice.backend, wrapper_wins ? &wrapper : &native) << text;
      EXPECT_NE(text.find("rank 3\n"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 8  -> "), std::string::npos) << text;
    }
  }
}

TEST(Select, PreferredBackendsComeFirstInTheirOrder) {
  const World world;
  const Device device = cpu(CpuLevel::kAmx);
  Choice choice = select(world.registry, problem(), device, {.names = {"oracle"}});
  EXPECT_EQ(name_of_choice(choice), "oracle");
  EXPECT_EQ(order_of(choice), (Names{"oracle", "fast_gpu", "any_gpu", "fast_cpu"}));
  choice = select(world.registry, problem(), device, {.names = {"any_gpu", "oracle", "any_gpu"}});
  EXPECT_EQ(name_of_choice(choice), "oracle");
  EXPECT_EQ(order_of(choice), (Names{"any_gpu", "oracle", "fast_gpu", "fast_cpu"}));
  choice = select(world.registry, problem(), device, {.names = {"any_gpu"}});
  EXPECT_EQ(name_of_choice(choice), "fast_cpu");  // a wish, not a must
}

TEST(Select, RequiredMeansNothingElse) {
  const World world;
  const Device device = cpu(CpuLevel::kAmx);
  Choice choice =
      select(world.registry, problem(), device, {.names = {"any_gpu"}, .required = true});
  EXPECT_EQ(name_of_choice(choice), "none");
  EXPECT_EQ(order_of(choice), Names{"any_gpu"});
  choice =
      select(world.registry, problem(), device, {.names = {"any_gpu", "oracle"}, .required = true});
  EXPECT_EQ(name_of_choice(choice), "oracle");
  choice = select(world.registry, problem(), device, {.names = {}, .required = true});
  EXPECT_EQ(name_of_choice(choice), "none");
}

std::string refusal(const LayerSpec& spec, const Registry& registry, const Preference& wish) {
  try {
    make_layer(spec, registry, cpu(CpuLevel::kAmx), Context{}, wish);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

// Whoever asks for a backend by name gets it or an error, never another one in silence.
TEST(Select, case_M13_AnOverrideIsTakenOrRefused) {
  const World world;
  EXPECT_THROW(select(world.registry, problem(), gpu(9, 0), {.names = {"fast_gpu", "nope"}}),
               ConfigError);
  LayerSpec spec;
  spec.num_heads = 4;
  spec.head_size = 64;
  const std::string unknown = refusal(spec, world.registry, {{"NOPE"}, true});
  for (const char* name : {"NOPE", "oracle", "fast_cpu", "any_gpu", "fast_gpu"})
    EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
  const std::string unsuitable = refusal(spec, world.registry, {{"any_gpu"}, true});
  EXPECT_NE(unsuitable.find("any_gpu"), std::string::npos) << unsuitable;
  EXPECT_NE(unsuitable.find("cpu amx"), std::string::npos) << unsuitable;
  spec.head_size = 77;
  const std::string odd = refusal(spec, world.registry, {{"fast_cpu"}, true});
  for (const char* word : {"fast_cpu: ", "head_size 77", "multiples of 8 to 512"})
    EXPECT_NE(odd.find(word), std::string::npos) << odd;
  EXPECT_EQ(refusal(spec, world.registry, {{"oracle"}, true}), "accepted");
}

// What a layer needs besides plain attention is a feature; a backend whose rows do not name it is
// passed over, and cannot be forced.
TEST(Select, case_M15_NothingOptionalIsTakenForGranted) {
  EXPECT_TRUE(Row{}.features.empty());
  LayerSpec plain;
  plain.num_heads = 4;
  plain.head_size = 64;
  const std::vector<std::pair<Feature, void (*)(LayerSpec&)>> asks = {
      {Feature::kSlidingWindow, [](LayerSpec& s) { s.sliding_window = 4; }},
      {Feature::kSoftCap, [](LayerSpec& s) { s.logits_soft_cap = 30; }},
      {Feature::kNonCausal, [](LayerSpec& s) { s.non_causal = true; }},
      {Feature::kLse, [](LayerSpec& s) { s.return_lse = true; }},
  };
  for (const auto& [feature, ask] : asks) {
    Row first = plain_row(), with = plain_row();
    first.rank = 9;
    for (const auto& [other, unused] : asks)
      if (other != feature) first.features.insert(other);
    with.features = {feature};
    const FakeBackend lacks("lacks", {first}), has("has", {with});
    Registry both, one;
    both.add(lacks).add(has);
    one.add(lacks);
    LayerSpec spec = plain;
    EXPECT_EQ(make_layer(spec, both, Device{}, Context{}).backend().name(), "lacks");
    ask(spec);
    EXPECT_EQ(make_layer(spec, both, Device{}, Context{}).backend().name(), "has");
    EXPECT_EQ(lacks.calls.num_impls, 1);
    for (const std::string& text :
         {refusal(spec, one, {}), refusal(spec, both, {{"lacks"}, true})}) {
      EXPECT_NE(text.find("lacks: " + std::string(refusal_text(feature))), std::string::npos)
          << text;
    }
    EXPECT_EQ(lacks.calls.num_impls, 1);
  }
}

TEST(Select, IsPure) {
  const World world;
  const Problem p = problem();
  const Choice first = select(world.registry, p, gpu(9, 0));
  select(world.registry, p, cpu(CpuLevel::kAmx), {.names = {"oracle"}, .required = true});
  const Choice second = select(world.registry, p, gpu(9, 0));
  EXPECT_EQ(order_of(first), order_of(second));
  EXPECT_EQ(first.backend, second.backend);
  for (std::size_t i = 0; i < first.considered.size(); ++i)
    EXPECT_EQ(first.considered[i].support.reasons, second.considered[i].support.reasons);
}

TEST(Select, ValidateOfABackendAsksItsRows) {
  const World world;
  const AttentionBackend& fast = world.registry.find("fast_gpu");
  Problem p = problem();
  p.block_size = {48};
  EXPECT_TRUE(validate(fast, p, gpu(9, 0)));
  EXPECT_FALSE(validate(fast, p, gpu(9, 0), BlockRule::kExact));
  EXPECT_EQ(validate(fast, p, gpu(8, 0)).reasons, validate(fast.rows(), p, gpu(8, 0)).reasons);
}

TEST(Select, AllReasonsCarryTheBackendsName) {
  const World world;
  Problem p = problem(DType::kF32);
  const std::vector<Reason> reasons = all_reasons(select(world.registry, p, gpu(7, 0)));
  ASSERT_EQ(reasons.size(), 5U);  // fast_gpu has two: dtype and device
  EXPECT_EQ(reasons[0].field, "fast_gpu: dtype");
  EXPECT_EQ(reasons[0].wanted, "f32");
  EXPECT_EQ(reasons[1].field, "fast_gpu: compute_capability");
  EXPECT_EQ(to_text({&reasons[2], 1}).rfind("any_gpu: compute capability not supported: sm_70", 0),
            0U);
}

LayerSpec spec() {
  LayerSpec s;
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.head_size = 64;
  return s;
}

TEST(Select, MakeLayerSelectsAndConstructs) {
  const World world;
  const AttentionLayer layer = make_layer(spec(), world.registry, cpu(CpuLevel::kAvx2), Context{});
  EXPECT_EQ(layer.backend().name(), "fast_cpu");
  EXPECT_EQ(
      make_layer(spec(), world.registry, cpu(CpuLevel::kAvx2), Context{}, {.names = {"oracle"}})
          .backend()
          .name(),
      "oracle");
}

TEST(Select, MakeLayerRefusesWithEveryBackendsReasons) {
  const World world;
  LayerSpec s = spec();
  s.attn_type = AttentionType::kEncoder;
  try {
    make_layer(s, world.registry, cpu(CpuLevel::kAvx2), Context{});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.kind(), ConfigError::Kind::kUnsupported);
    EXPECT_EQ(e.reasons(),
              all_reasons(select(world.registry, problem_of(complete(s)), cpu(CpuLevel::kAvx2))));
    for (const char* name : {"oracle: ", "fast_cpu: ", "any_gpu: ", "fast_gpu: "})
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos);
  }
  EXPECT_THROW(make_layer(spec(), Registry{}, Device{}, Context{}), ConfigError);
  s = spec();
  s.num_heads = 0;
  EXPECT_THROW(make_layer(s, world.registry, Device{}, Context{}), ConfigError);
}

// Random rows of random backends: the choice is the best-ranked backend of which some row alone
// admits the problem, ties by name.
TEST(Select, AgreesWithBruteForceOverRows) {
  std::mt19937 random(11);
  const auto draw = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  int chosen = 0;
  const Row plain = plain_row();
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::unique_ptr<FakeBackend>> backends;
    Registry registry;
    for (const char* name : {"c", "a", "b"}) {
      Rows rows(static_cast<std::size_t>(draw(3)), plain);
      for (Row& row : rows) {
        if (draw(2) == 0) row.dtypes = {DType::kF16, DType::kBF16};
        row.kv_dtypes = {KVDType::kF32, KVDType::kF16};
        if (draw(2) == 0) row.head_sizes = {{64, 64, 128}};
        if (draw(2) == 0) row.features = {Feature::kSlidingWindow};
        row.rank = draw(3);
      }
      backends.push_back(std::make_unique<FakeBackend>(name, rows));
      registry.add(*backends.back());
    }
    Problem p = problem(draw(2) == 0 ? DType::kF32 : DType::kF16);
    p.head_size = p.head_size_v = draw(2) == 0 ? 64 : 80;
    if (draw(2) == 0) p.features = {Feature::kSlidingWindow};
    std::string want = "none";
    int best = -1;
    for (const char* name : {"a", "b", "c"}) {
      for (const Row& row : registry.find(name).rows()) {
        if (validate({row}, p, Device{}) && row.rank > best) {
          best = row.rank;
          want = name;
        }
      }
    }
    EXPECT_EQ(name_of_choice(select(registry, p, Device{})), want) << i;
    if (want != "none") ++chosen;
  }
  EXPECT_GT(chosen, 200);
  EXPECT_LT(chosen, 1800);
}

}  // namespace
}  // namespace fovea
