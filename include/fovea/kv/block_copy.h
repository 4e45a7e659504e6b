// SPDX-License-Identifier: Apache-2.0
// Copies of whole blocks inside one cache: what sharing a block costs when somebody writes to it.
#pragma once

#include <span>

#include "fovea/kv/spec.h"

namespace fovea {

struct PagedLayout;

// Manager blocks of one pool.
struct BlockCopy {
  BlockId from = 0, to = 0;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

namespace kv {
// Copies the content of blocks in all layers of the cache in host memory at `base` (total_bytes of
// it, aligned to 64), one copy after the other, so a later one may read what an earlier one wrote.
// Works for every layout and format; padding is not copied. InputError, and nothing has been
// written, for a block that is out of range, `base` or a changed layout. No allocation.
void copy_blocks(const PagedLayout& layout, void* base, std::span<const BlockCopy> copies);
}  // namespace kv

}  // namespace fovea
