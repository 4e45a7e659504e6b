// SPDX-License-Identifier: Apache-2.0
#include "paged_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "number.h"

namespace fovea::conformance {
namespace {

// Every number says where it belongs: position, head, element, and half of one for values.
std::vector<Values> numbered_values(const Case& c) {
  const auto number = [](double more) -> Fill {
    return [more](int p, int g, int e) { return 100.0 * p + 10.0 * g + e + more; };
  };
  std::vector<Values> all;
  for (const Request& r : c.requests)
    all.push_back(make_values(c, r, {number(0), number(0), number(0.5)}));
  return all;
}

// Two requests of seven and five tokens; two and one of them are new.
Call call_with_history() {
  Call call;
  call.problem.requests = {{2, 7}, {1, 5}};
  call.problem.num_heads = call.problem.num_kv_heads = 2;
  call.problem.head_size = 3;
  call.problem.head_size_v = 2;
  call.block_size = 4;
  return call;
}

// A pool, and its view and tables as a backend gets them.
struct Pool {
  explicit Pool(const Call& c)
      : call(c),
        values(numbered_values(c.problem)),
        pool(call, values),
        view(pool.view()),
        table(pool.tables(static_cast<int>(c.problem.requests.size()), slots).block_table) {}
  std::int32_t block(int r, std::int64_t column) const {
    return table.data_as<std::int32_t>()[r * table.stride(0) + column * table.stride(1)];
  }
  // One number of the cache in a copy of the pool's memory.
  double at(const std::vector<std::byte>& bytes, const TensorView& plane,
            std::array<std::int64_t, 4> index) const {
    std::int64_t element = 0;
    for (int d = 0; d < 4; ++d) element += index[static_cast<std::size_t>(d)] * plane.stride(d);
    const auto offset = plane.data_as<std::byte>() - view_base() +
                        element * static_cast<std::int64_t>(size_of(plane.dtype()));
    return load(plane.dtype(), bytes.data() + offset);
  }
  const std::byte* view_base() const { return pool.memory().data(); }
  std::vector<std::byte> bytes() const {
    return {pool.memory().bytes().begin(), pool.memory().bytes().end()};
  }

  Call call;
  std::vector<Values> values;
  Memory slots{24};
  PagedPool pool;
  KVCacheView view;
  TensorView table;
};

// Number of request 0 at a position, through the view and the table.
double key_at(const Pool& p, const std::vector<std::byte>& bytes, int r, int position,
              int element) {
  const int size = p.call.block_size;
  return p.at(bytes, p.view.keys, {p.block(r, position / size), position % size, 1, element});
}

void expect_history_and_new_tokens(const Call& call) {
  const Pool p(call);
  const std::vector<std::byte> before = p.bytes();
  std::vector<std::byte> behind = before;
  for (int r = 0; r < 2; ++r) {
    const auto [query_len, kv_len] = call.problem.requests[static_cast<std::size_t>(r)];
    for (int pos = kv_len - query_len; pos < kv_len; ++pos)
      p.pool.write_cell(behind.data(), p.values, r, pos);
    for (int pos = 0; pos < kv_len; ++pos) {
      const int size = call.block_size;
      const std::array<std::int64_t, 4> last{p.block(r, pos / size), pos % size, 1, 1};
      EXPECT_EQ(p.pool.slot(r, pos), std::int64_t{last[0]} * size + last[1]);
      const bool is_new = pos >= kv_len - query_len;
      EXPECT_EQ(std::isnan(p.at(before, p.view.keys, last)), is_new) << r << ' ' << pos;
      EXPECT_EQ(p.at(behind, p.view.keys, last), 100 * pos + 11);
      EXPECT_EQ(p.at(behind, p.view.values, last), 100 * pos + 11.5);
    }
  }
}

TEST(PagedPool, everything_lies_where_view_and_table_say) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    Call call = call_with_history();
    call.layout = layout;
    call.num_layers = 3;
    call.layer = 2;
    expect_history_and_new_tokens(call);
  }
  for (const CacheForm form : {CacheForm::kPaged, CacheForm::kPlanes, CacheForm::kSparseKeys}) {
    Call call = call_with_history();
    call.cache_form = form;
    expect_history_and_new_tokens(call);
    if (form == CacheForm::kPlanes) continue;  // such a block cannot be cut
    call.kernel_blocks_per_manager_block = 3;
    expect_history_and_new_tokens(call);
  }
}

TEST(PagedPool, forms_of_a_cache) {
  Call call = call_with_history();  // a block has 4 tokens, 24 keys and 16 values
  call.cache_form = CacheForm::kPlanes;
  const Pool planes(call);
  EXPECT_EQ(planes.view.keys.stride(0), 40);
  EXPECT_EQ(planes.view.keys.stride(1), 6);
  EXPECT_EQ(planes.view.values.stride(1), 4);
  call.cache_form = CacheForm::kSparseKeys;
  const Pool sparse(call);
  EXPECT_EQ(sparse.view.keys.stride(0), 48);
  EXPECT_EQ(sparse.view.keys.stride(1), 12);
  EXPECT_EQ(sparse.view.values.stride(0), 16);
}

// Slot 5 with manager blocks of 16 and kernel blocks of 4 is in the second kernel block.
TEST(PagedPool, manager_blocks_and_kernel_blocks) {
  Call call = call_with_history();
  call.problem.requests = {{1, 10}};
  call.kernel_blocks_per_manager_block = 4;
  call.blocks = {{2}};
  call.num_blocks = 3;
  const Pool p(call);
  EXPECT_EQ(p.pool.slot(0, 5), 2 * 16 + 5);
  EXPECT_EQ(p.pool.slot(0, -1), -1);
  EXPECT_EQ(p.block(0, 0), 8);
  EXPECT_EQ(p.block(0, 1), 9);
  EXPECT_EQ(p.view.keys.size(0), 12);
  EXPECT_EQ(p.at(p.bytes(), p.view.keys, {9, 1, 0, 2}), 502);
}

TEST(PagedPool, blocks_that_a_call_names) {
  Call call = call_with_history();
  call.blocks = {{4, 0}, {1, 3}};
  call.num_blocks = 9;
  const Pool p(call);
  EXPECT_EQ(p.view.keys.size(0), 9);
  EXPECT_EQ(p.block(0, 0), 4);
  EXPECT_EQ(p.block(0, 1), 0);
  EXPECT_EQ(p.block(1, 1), 3);
  EXPECT_EQ(key_at(p, p.bytes(), 1, 3, 0), 310);
}

// Nobody else's block, and no valid one behind those in use.
TEST(PagedPool, every_block_has_one_owner) {
  std::set<std::int32_t> first_blocks;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Call call = call_with_history();
    call.seed = seed;
    call.block_zero_lives = seed % 2 == 1;
    const Pool p(call);
    std::set<std::int32_t> owned;
    for (int r = 0; r < 2; ++r) {
      for (std::int64_t column = 0; column < p.table.size(1); ++column) {
        const std::int32_t id = p.block(r, column);
        const bool is_valid = id >= 0 && id < p.view.keys.size(0);
        EXPECT_EQ(is_valid, column < 2) << id;
        const bool is_first = column >= 2 || owned.insert(id).second;
        EXPECT_TRUE(is_first) << id;
      }
    }
    EXPECT_EQ(owned.contains(0), call.block_zero_lives);
    EXPECT_GE(p.view.keys.size(0), 6);  // two that nobody owns
    first_blocks.insert(p.block(0, 0));
  }
  EXPECT_GT(first_blocks.size(), 3U);  // other places with another seed
}

TEST(PagedPool, poison_where_the_call_wants_it) {
  Call call = call_with_history();
  call.blocks = {{2, 1}, {4, 3}};
  call.num_blocks = 6;
  const auto numbers = [&](FlagSet<Poison> poison) {
    call.poison = poison;
    const Pool p(call);
    const std::vector<std::byte> bytes = p.bytes();
    struct {
      double unowned, tail;
      std::int32_t unused_entry;
    } n{p.at(bytes, p.view.values, {5, 0, 0, 0}), p.at(bytes, p.view.values, {1, 3, 1, 1}),
        p.table.size(1) > 2 ? p.block(0, 2) : 0};
    return n;
  };
  for (call.seed = 0; call.seed < 4; ++call.seed) {  // of these, some tables are wider than needed
    const auto both = numbers({Poison::kUnowned, Poison::kTails});
    EXPECT_TRUE(std::isnan(both.unowned) && std::isnan(both.tail));
    const auto unowned = numbers({Poison::kUnowned});
    EXPECT_TRUE(std::isnan(unowned.unowned));
    EXPECT_EQ(unowned.tail, 0);
    const auto tails = numbers({Poison::kTails});
    EXPECT_TRUE(std::isnan(tails.tail));
    EXPECT_EQ(tails.unowned, 0);
    EXPECT_EQ(tails.unused_entry, 0);
  }
}

TEST(PagedPool, larger_than_memory) {
  Call call = call_with_history();
  call.blocks = {{(1 << 28) - 1, 7}, {0, 1}};
  call.num_blocks = 1 << 28;  // of 160 bytes
  call.lazy_memory = true;
  Pool p(call);
  EXPECT_GE(p.pool.memory().size(), std::size_t{40} << 30);
  EXPECT_EQ(p.pool.slot(0, 3), (std::int64_t{1} << 30) - 1);
  EXPECT_EQ(*(p.view.keys.data_as<float>() + ((std::int64_t{1} << 28) - 1) * p.view.keys.stride(0)),
            0);  // key 0 of position 0 is 0
  EXPECT_EQ(*(p.view.keys.data_as<float>() + ((std::int64_t{1} << 28) - 1) * p.view.keys.stride(0) +
              3 * p.view.keys.stride(1)),
            300);
}

}  // namespace
}  // namespace fovea::conformance
