// SPDX-License-Identifier: Apache-2.0
#include "fovea/select/nearest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/fake_backend.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using testing::FakeBackend;
using testing::plain_row;

Problem problem() {
  Problem p;
  p.num_heads = 32;
  p.num_kv_heads = 8;
  p.head_size = p.head_size_v = 128;
  p.dtype = p.output_dtype = DType::kF32;
  p.kv_dtype = KVDType::kF32;
  p.block_size = {16};
  return p;
}

// Registries with the backends that they hold.
struct World {
  World& add(const std::string& name, Rows rows) {
    backends.push_back(std::make_unique<FakeBackend>(name, std::move(rows)));
    registry.add(*backends.back());
    return *this;
  }
  std::vector<std::unique_ptr<FakeBackend>> backends = {};
  Registry registry = {};
};

std::string text(const World& world, const Problem& p, const Preference& preference = {}) {
  return to_text(nearest(world.registry, p, Device{}, preference));
}

TEST(Nearest, NothingIsChangedWhereSomethingFits) {
  World world;
  world.add("a", {plain_row()});
  const Nearest n = nearest(world.registry, problem(), Device{});
  EXPECT_EQ(n.backend, world.backends[0].get());
  EXPECT_TRUE(n.changes.empty());
  EXPECT_EQ(to_text(n), "a, as it is");
}

TEST(Nearest, NoBackendComesNear) {
  World world;
  EXPECT_EQ(text(world, problem()), "no registered backend comes near");
  Row nothing = plain_row();
  nothing.head_sizes = {};
  world.add("a", {}).add("b", {nothing});
  const Nearest n = nearest(world.registry, problem(), Device{});
  EXPECT_EQ(n.backend, nullptr);
  EXPECT_TRUE(n.changes.empty());
}

TEST(Nearest, EachFieldCanBeChanged) {
  struct Want {
    void (*restrict)(Row&);
    void (*ask)(Problem&);
    Change change;
  };
  const Want table[] = {
      {[](Row&) {}, [](Problem& p) { p.features = {Feature::kSinks}; }, {"sinks", "on", "off"}},
      {[](Row& r) { r.head_sizes = {{8, 8, 512}}; },
       [](Problem& p) { p.head_size = p.head_size_v = 46; },
       {"head_size", "46", "48"}},
      {[](Row& r) { r.head_sizes = {{8, 8, 512}}; },
       [](Problem& p) { p.head_size = p.head_size_v = 600; },
       {"head_size", "600", "512"}},
      {[](Row&) {}, [](Problem& p) { p.head_size_v = 64; }, {"head_size_v", "64", "128"}},
      {[](Row& r) { r.dtypes = {DType::kF16, DType::kBF16}; },
       [](Problem&) {},
       {"dtype", "f32", "bf16"}},
      {[](Row& r) { r.kv_dtypes = {KVDType::kF16}; },
       [](Problem&) {},
       {"kv_cache_dtype", "f32", "f16"}},
      {[](Row& r) { r.block_sizes = {{64, 64}}; }, [](Problem&) {}, {"block_size", "16", "64"}},
      {[](Row& r) { r.group_sizes = {{1, 1, 2}}; },
       [](Problem&) {},
       {"num_heads", "32/8", "32/16"}},
      {[](Row&) {}, [](Problem& p) { p.num_kv_heads = 5; }, {"num_heads", "32/5", "32/4"}},
      {[](Row&) {},
       [](Problem& p) { p.output_dtype = DType::kBF16; },
       {"output_dtype", "bf16", "f32"}},
      {[](Row&) {},
       [](Problem& p) { p.attn_type = AttentionType::kEncoder; },
       {"attn_type", "encoder", "decoder"}},
      {[](Row&) {},
       [](Problem& p) { p.layout = CacheLayout::kBHLNC; },
       {"layout", "BHLNC", "LBNHC"}},
      {[](Row& r) { r.query_len = {1, 8}; }, [](Problem&) {}, {"query_len", "1..∞", "1..8"}},
      {[](Row& r) { r.devices.min_level = CpuLevel::kAvx512; },
       [](Problem&) {},
       {"compute_capability", "cpu portable", "cpu avx512 or better"}},
      {[](Row& r) { r.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 89}}; },
       [](Problem&) {},
       {"compute_capability", "cpu portable", "sm_80 to sm_89"}},
  };
  for (const Want& w : table) {
    Row row = plain_row();
    w.restrict(row);
    Problem p = problem();
    w.ask(p);
    World world;
    world.add("a", {row});
    const Nearest n = nearest(world.registry, p, Device{});
    ASSERT_NE(n.backend, nullptr) << w.change.field;
    EXPECT_EQ(n.changes, std::vector{w.change}) << to_text(n);
    EXPECT_TRUE(validate(*n.backend, n.problem, n.device)) << w.change.field;
  }
}

TEST(Nearest, FewerChangesWinOverEasierOnes) {
  Row narrow = plain_row(), general = plain_row();
  narrow.features = {Feature::kSinks};
  narrow.block_sizes = {{64, 64}};
  narrow.layouts = {CacheLayout::kLBHNC};
  World world;
  world.add("narrow", {narrow}).add("general", {general});
  Problem p = problem();
  p.features = {Feature::kSinks};
  p.layout = CacheLayout::kLBNHC;
  EXPECT_EQ(text(world, p), "general, with sinks off instead of on");
  p.features.insert(Feature::kAlibi);  // two for the one, three for the other
  EXPECT_EQ(text(world, p), "general, with sinks off instead of on and alibi off instead of on");
}

TEST(Nearest, AmongEquallyManyTheEasierOnesThenRankThenName) {
  Row padded = plain_row(), blocks = plain_row(), remote = plain_row(), sinkless = plain_row();
  padded.features = blocks.features = remote.features = {Feature::kSinks};
  padded.head_sizes = {{256, 256, 256}};
  blocks.block_sizes = {{64, 64}};
  remote.devices.min_level = CpuLevel::kAmx;
  Problem p = problem();
  p.features = {Feature::kSinks};
  World world;
  world.add("remote", {remote});
  EXPECT_EQ(text(world, p),
            "remote, with compute_capability cpu amx or better instead of cpu portable");
  world.add("sinkless", {sinkless});
  EXPECT_EQ(text(world, p), "sinkless, with sinks off instead of on");
  world.add("padded", {padded});
  EXPECT_EQ(text(world, p), "padded, with head_size 256 instead of 128");
  world.add("blocks", {blocks});
  EXPECT_EQ(text(world, p), "blocks, with block_size 64 instead of 16");
  world.add("again", {blocks});
  EXPECT_EQ(text(world, p), "again, with block_size 64 instead of 16");
  blocks.rank = 1;
  world.add("fast", {blocks});
  EXPECT_EQ(text(world, p), "fast, with block_size 64 instead of 16");
}

TEST(Nearest, ARequiredBackendMayBeAnotherOne) {
  Row small = plain_row(), large = plain_row();
  small.head_sizes = {{1, 1, 64}};
  World world;
  world.add("small", {small}).add("large", {large});
  const Preference only_small{{"small"}, true};
  EXPECT_EQ(text(world, problem(), only_small), "large, with backend large instead of small");
  Problem p = problem();
  p.features = {Feature::kSinks};
  EXPECT_EQ(text(world, p, only_small),
            "large, with backend large instead of small and sinks off instead of on");
  p.head_size = p.head_size_v = 63;
  EXPECT_EQ(text(world, p, only_small), "small, with sinks off instead of on");
  EXPECT_EQ(text(world, problem(), {{}, true}), "large, with backend large instead of none");
  EXPECT_THROW(nearest(world.registry, p, Device{}, {{"NOPE"}, true}), ConfigError);
}

TEST(Nearest, ExclusionsAreLeftByTheEasiestTerm) {
  Row row = plain_row();
  row.features = {Feature::kSinks, Feature::kLse};
  row.exclusions = {{{{.field = Field::kFeature, .feature = Feature::kSinks},
                      {.field = Field::kBlockSize, .in = {1, 31}}},
                     "sinks need blocks of 32"},
                    {{{.field = Field::kFeature, .feature = Feature::kSinks},
                      {.field = Field::kFeature, .feature = Feature::kLse}},
                     "no sinks with LSE"}};
  World world;
  world.add("a", {row});
  Problem p = problem();
  p.features = {Feature::kSinks};
  EXPECT_EQ(text(world, p), "a, with block_size 32 instead of 16");
  p.features = {Feature::kSinks, Feature::kLse};  // one change is against both
  EXPECT_EQ(text(world, p), "a, with sinks off instead of on");
  p.block_size = {32};
  EXPECT_EQ(text(world, p), "a, with lse off instead of on");
}

TEST(Nearest, AValueThatAnExclusionForbidsIsPassedBy) {
  Row row = plain_row();
  row.head_sizes = {{8, 8, 256}};
  row.exclusions = {{{{.field = Field::kHeadSize, .in = {48, 48}}}, "no 48"}};
  World world;
  world.add("a", {row});
  Problem p = problem();
  p.head_size = p.head_size_v = 46;
  EXPECT_EQ(text(world, p), "a, with head_size 56 instead of 46");
}

TEST(Nearest, QueryLengthsOfSeveralRows) {
  Row decode = plain_row(), prefill = plain_row();
  decode.query_len = {1, 8};
  prefill.query_len = {9, INT_MAX};
  prefill.block_sizes = {{64, 64}};
  World world;
  world.add("a", {decode, prefill});
  EXPECT_EQ(text(world, problem()), "a, with block_size 64 instead of 16");
  Problem p = problem();
  p.query_len = {20, 30};
  EXPECT_EQ(text(world, p), "a, with block_size 64 instead of 16");
  p.query_len = {5, 4};  // no length at all
  EXPECT_EQ(text(world, p), "a, with query_len 1..8 instead of 5..4");
}

// Everything that is refused, at once.
TEST(Nearest, ManyChangesAtOnce) {
  Row row = plain_row();
  row.head_sizes = {{64, 64, 64}};
  row.block_sizes = {{32, 32}};
  row.group_sizes = {{1, 1, 2}};
  row.query_len = {1, 1};
  row.devices = {.type = DeviceType::kCuda, .compute_capability = {90, 90}};
  Problem p = problem();
  p.dtype = p.output_dtype = DType::kBF16;
  p.kv_dtype = KVDType::kNvfp4;
  p.attn_type = AttentionType::kEncoder;
  p.layout = CacheLayout::kBHLNC;
  p.features = FlagSet<Feature>::all();
  World world;
  world.add("a", {row});
  const Nearest n = nearest(world.registry, p, Device{});
  EXPECT_EQ(n.changes.size(), 28U) << to_text(n);
  EXPECT_TRUE(validate({row}, n.problem, n.device));
  EXPECT_EQ(n.changes.front(), (Change{"head_size", "128", "64"}));
  EXPECT_EQ(n.changes.back(), (Change{"query_len", "1..∞", "1"}));
}

// Random rows of random backends with random exclusions: no smaller set of changes works, of those
// that small domains have.
TEST(Nearest, NoSmallerSetOfChangesWorks) {
  std::mt19937 random(3);
  const auto draw = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  const std::vector<int> sizes = {32, 64, 128, 256}, blocks = {8, 16, 32};
  const std::vector<DType> dtypes = {DType::kF32, DType::kF16};
  const std::vector<Feature> features = {Feature::kSinks, Feature::kLse};
  const auto random_row = [&] {
    Row row = plain_row();
    row.head_sizes = {{sizes[static_cast<std::size_t>(draw(4))], 1, 256}};
    const int block = blocks[static_cast<std::size_t>(draw(3))];
    row.block_sizes = {{block, block}};
    row.dtypes = {dtypes[static_cast<std::size_t>(draw(2))]};
    if (draw(2) == 0) row.features.insert(features[static_cast<std::size_t>(draw(2))]);
    if (draw(3) == 0)
      row.exclusions.push_back(
          {{{.field = Field::kFeature, .in = {draw(2), 1}, .feature = Feature::kLse},
            {.field = Field::kHeadSize, .in = {64, 64 << draw(2)}}},
           "no"});
    if (draw(3) == 0)
      row.exclusions.push_back({{{.field = Field::kBlockSize, .in = {1, 16}},
                                 {.field = Field::kDType, .in = {draw(2), 1}}},
                                "no"});
    row.rank = draw(3);
    return row;
  };
  int with_changes = 0;
  for (int i = 0; i < 300; ++i) {
    World world;
    for (const char* name : {"a", "b"}) world.add(name, {random_row(), random_row()});
    Problem p = problem();
    p.head_size = p.head_size_v = sizes[static_cast<std::size_t>(draw(4))];
    p.block_size = {blocks[static_cast<std::size_t>(draw(3))]};
    p.dtype = p.output_dtype = dtypes[static_cast<std::size_t>(draw(2))];
    for (const Feature f : features)
      if (draw(2) == 0) p.features.insert(f);
    std::size_t least = 99;
    for (int code = 0; code < 4 * 3 * 2 * 4; ++code) {
      Problem q = p;
      q.head_size = q.head_size_v = sizes[static_cast<std::size_t>(code % 4)];
      q.block_size = {blocks[static_cast<std::size_t>(code / 4 % 3)]};
      q.dtype = q.output_dtype = dtypes[static_cast<std::size_t>(code / 12 % 2)];
      q.features = {};
      for (std::size_t f = 0; f < 2; ++f)
        if ((code / 24 >> f) % 2 == 1) q.features.insert(features[f]);
      if (select(world.registry, q, Device{}).backend == nullptr) continue;
      std::size_t changes = q.head_size != p.head_size ? 1 : 0;
      changes += q.block_size != p.block_size ? 1 : 0;
      changes += q.dtype != p.dtype ? 1 : 0;
      for (const Feature f : features) changes += q.features.has(f) != p.features.has(f) ? 1 : 0;
      least = std::min(least, changes);
    }
    const Nearest n = nearest(world.registry, p, Device{});
    if (n.backend == nullptr) {
      EXPECT_EQ(least, 99U) << i;
      continue;
    }
    EXPECT_LE(n.changes.size(), least) << i << ": " << to_text(n);
    EXPECT_TRUE(validate(*n.backend, n.problem, n.device)) << i;
    if (!n.changes.empty()) ++with_changes;
    const Nearest again = nearest(world.registry, p, Device{});
    EXPECT_EQ(again.changes, n.changes);
    EXPECT_EQ(again.backend, n.backend);
  }
  EXPECT_GT(with_changes, 100);
}

// A row that only a huge search could rule out: the work is bounded all the same.
TEST(Nearest, TheWorkIsBounded) {
  Row row = plain_row();
  row.head_sizes = {{1, 1, 100000}};
  for (int size = 1; size < 3000; ++size)
    row.exclusions.push_back(
        {{{.field = Field::kHeadSize, .in = {size, size}}, {Field::kDType, {0, 9}}}, "no"});
  World world;
  world.add("a", {row});
  Problem p = problem();
  p.head_size = p.head_size_v = 1500;
  EXPECT_EQ(nearest(world.registry, p, Device{}).backend, nullptr);
}

}  // namespace
}  // namespace fovea
