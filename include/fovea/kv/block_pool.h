// SPDX-License-Identifier: Apache-2.0
// Hands out the blocks of one cache. Counts references, keeps free blocks in the order in which
// they are handed out (5.8): first those without reusable content, then those with, least recently
// used first. Not thread-safe: one scheduler owns a pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/kv/spec.h"

namespace fovea {

// Steps are numbered by the engine in the order of their launch. 0: no step can still touch the
// block.
using StepNumber = std::int64_t;

struct BlockPoolOptions {
  std::int64_t num_blocks = 0;
  bool null_block =
      true;  // block 0 is taken at the start, never handed out and never freed: it fills holes
};

// Told when the content of a block stops to be reusable.
class EvictionListener {
 public:
  virtual ~EvictionListener() = default;
  // The block is about to be handed out to write, or its mark was taken away.
  virtual void on_evict(BlockId block) noexcept = 0;
};

class BlockPool {
 public:
  // Throws ConfigError unless there is at least one block to hand out and ids fit 31 bits.
  explicit BlockPool(const BlockPoolOptions& options);
  ~BlockPool() = default;
  BlockPool(const BlockPool&) = delete;  // its requests point to it
  BlockPool(BlockPool&&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  BlockPool& operator=(BlockPool&&) = delete;

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks_.size()); }
  // Blocks that allocate() can hand out now, cached ones among them.
  std::int64_t num_free() const { return free_.size; }
  // Most blocks ever owned at once.
  std::int64_t peak_owned() const { return peak_owned_; }
  std::optional<BlockId> null_block() const;

  // Fills `out` with blocks of one reference each, from the head of the free queue. All or nothing:
  // false, and nothing has changed, if there are too few. A cached block loses its mark, and the
  // listener is told, before this returns.
  [[nodiscard]] bool allocate(std::span<BlockId> out);
  // One more owner of an owned block. InputError for a block that is free, out of range or null.
  void add_reference(BlockId block);
  // One more owner for each block whose content is reused: owned, or cached and free (it leaves the
  // queue) or waiting for a step. InputError, and nothing has changed, for a block that is out of
  // range or neither owned nor cached. Null blocks of a list are passed over, a single one is an
  // InputError. Never allocates memory.
  void take(std::span<const BlockId> blocks);
  void take(BlockId block);
  // One owner less for each. A block without owners goes to the tail of the free queue if it is
  // cached, else to its head, both in the given order (hand a request's blocks over last first). It
  // is handed out again only once `last_step` has completed. InputError, and nothing has changed,
  // for a block that is free or out of range, or named more often than it is owned; null blocks are
  // passed over. Never allocates memory.
  void release(std::span<const BlockId> blocks, StepNumber last_step = 0);
  // All launched steps up to this one have finished.
  void complete_step(StepNumber step);

  // A cached block holds content that others may take, and nobody writes to it. Marking twice
  // changes nothing. InputError for a block that is not owned, out of range or null.
  void mark_cached(BlockId block);
  // Forgets the content and tells the listener; a free block goes to the head of the queue. A block
  // without a mark is left alone.
  void unmark_cached(BlockId block);
  bool is_cached(BlockId block) const;
  // Not owned; null: nobody listens. All marks end with the listener that saw them set: it is told.
  void set_listener(EvictionListener* listener);
  EvictionListener* listener() const { return listener_; }

  int num_references(BlockId block) const;
  // Checks the model: every block is free, waiting for a step, or owned with the right count, and
  // the free queue is in order. `owned` lists, for each owner, its blocks. Returns what is wrong, a
  // sentence each; empty: all right.
  std::vector<std::string> check_ownership(std::span<const std::span<const BlockId>> owned) const;

 private:
  friend struct BlockPoolPeer;  // a test breaks a pool, to see that check_ownership() notices
  enum class Place : std::uint8_t { kOwned, kFree, kWaiting };
  struct Block {
    BlockId prev = -1, next = -1;  // in the list of its place
    int references = 0;
    Place place = Place::kOwned;
    bool cached = false;
    StepNumber last_step = 0;
  };
  struct List {
    BlockId head = -1, tail = -1;
    std::int64_t size = 0;
  };
  bool is_null(BlockId block) const { return has_null_ && block == 0; }
  void check_id(BlockId block) const;
  void link(Place place, BlockId after, BlockId block);
  void unlink(BlockId block);
  BlockId link_free(BlockId block, BlockId front);
  void forget(BlockId block);
  void update_peak();
  std::vector<int> check_list(Place place, std::vector<std::string>& wrong) const;
  void check_order(std::vector<std::string>& wrong) const;

  std::vector<Block> blocks_;
  std::vector<int> seen_;  // scratch of release()
  List free_, waiting_;    // waiting: released, but a launched step may still touch them
  std::int64_t peak_owned_ = 0;
  StepNumber completed_ = 0;
  EvictionListener* listener_ = nullptr;
  bool has_null_ = false;
};

}  // namespace fovea
