// SPDX-License-Identifier: Apache-2.0
// The pool of a call, with the history of its requests in it, and the block table: everything that
// no request owns is poison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dense.h"
#include "fovea/conformance/call.h"
#include "fovea/kv/layout.h"
#include "guarded_memory.h"
#include "rng.h"

namespace fovea::conformance {

class PagedPool {
 public:
  // One entry of `values` for each request. The call outlives the pool.
  PagedPool(const Call& call, const std::vector<Values>& values);

  KVCacheView view();
  // Slots of the tokens in `slots`: int64.
  BlockTables tables(int num_reqs, Memory& slots);
  std::int64_t slot(int request, int position) const;
  // Keys and values of one position, at the place in a copy of the pool at `base` that the call
  // says.
  void write_cell(std::byte* base, const std::vector<Values>& all, int request, int position) const;
  const Memory& memory() const { return memory_; }
  const Memory& table() const { return table_; }

 private:
  // Byte strides of keys or of values: where element 0 of (block, token, head) lies.
  struct Plane {
    std::int64_t offset = 0, block = 0, token = 0, head = 0;
    std::byte* at(std::byte* base, std::int64_t b, std::int64_t t, std::int64_t h) const {
      return base + offset + b * block + t * token + h * head;
    }
  };
  void place_blocks(Rng& rng);
  void fill_table(Rng& rng);
  void fill_memory(const std::vector<Values>& values);
  // Sets both planes; the bytes of the pool.
  std::int64_t lay_out();
  // Calls f(keys, values, head) with the addresses of each head of one position in a pool at
  // `base`.
  template <class F>
  void for_cells(std::byte* base, int request, int position, F f) const;
  void blank_cell(int request, int position, int byte);

  const Call& call_;
  PagedLayout layout_;
  Plane key_plane_, value_plane_;                  // in manager blocks
  std::vector<std::vector<std::int32_t>> blocks_;  // manager blocks of each request
  std::int64_t num_blocks_ = 0;
  std::int64_t table_width_ = 0, table_stride_ = 0;
  Memory table_;  // int32: kernel blocks, garbage behind the used ones
  Memory memory_;
};

}  // namespace fovea::conformance
