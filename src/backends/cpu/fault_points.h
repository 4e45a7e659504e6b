// SPDX-License-Identifier: Apache-2.0
// The points of an item at which a fault could slip in, each with what flows through it.
//
// The driver of an item (item_run.h) is a template over them. Here they are empty, and the product
// knows no others. Tests of tests compile the same driver with points that put known faults in
// (tests/faults), to see which checks notice.
#pragma once

#include "backends/cpu/item.h"
#include "backends/cpu/kernels/kernels.h"
#include "fovea/attention/mask.h"

namespace fovea::cpu {

// The tensor in which a row's place is meant.
enum class RowOf : unsigned char { kQueries, kOutput, kLse };

struct NoFaults {
  // What runs of a planned item; a copy where that is changed.
  using Planned = const Item&;
  static void item(const Call& /*call*/, Planned /*item*/) {}
  // The keys that a row sees; rows are counted from the start of the request.
  static void visible(const Job& /*job*/, int /*row*/, Visible& /*seen*/) {}
  // The keys that the item reads.
  static void keys_read(const Job& /*job*/, Interval& /*keys*/) {}
  static void place(const Job& /*job*/, RowOf /*tensor*/, RowPlace& /*place*/) {}
  // Where the key and the value of a position are; null: zeros.
  static void cell(const Job& /*job*/, int /*position*/, const void*& /*key*/,
                   const void*& /*value*/) {}
  // A tile of keys, from `first_key` on, before and behind its kernel.
  template <class Number>
  static void tile(const Job& /*job*/, int /*first_key*/, TileArgs<Number>& /*tile*/) {}
  template <class Number>
  static void attended(const Job& /*job*/, const TileArgs<Number>& /*tile*/) {}
  // The state of a range on its way into the state of those before it.
  template <class Number>
  static void fold(const Job& /*job*/, int /*range*/, const State<Number>& /*into*/,
                   const State<Number>& /*from*/) {}
  // Finished rows before they are written.
  template <class Number>
  static void store(const Job& /*job*/, StoreArgs<Number>& /*rows*/) {}
  // The LSE of row r of the state, in the base of the call.
  template <class Number>
  static void lse(const Job& /*job*/, const State<Number>& /*state*/, int /*r*/, float& /*lse*/) {}
};

}  // namespace fovea::cpu
