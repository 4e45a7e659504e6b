// SPDX-License-Identifier: Apache-2.0
// The points of cpu's driver (backends/cpu/fault_points.h) with the faults in: each does what the
// chosen fault wants there. None reads or writes what is not mapped, however wrong it is: an
// address that a fault invents is brought back into the tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/fault_points.h"
#include "backends/cpu/item.h"
#include "backends/cpu/kernels/kernels.h"
#include "faults/faults.h"
#include "fovea/attention/mask.h"

namespace fovea::faults {

// The fault of the calls that run now.
Fault chosen();
void choose(Fault fault);

// What faulty code keeps from one call to the next.
struct History {
  std::vector<std::vector<std::int32_t>> table = {};  // of the previous call, the used entries
  int calls = 0;
};
History& history();

// As cpu::NoFaults, which says what each is.
struct FaultPoints {
  using Planned = cpu::Item;
  static void item(const cpu::Call& call, cpu::Item& item);
  static void visible(const cpu::Job& job, int row, Visible& seen);
  static void keys_read(const cpu::Job& job, Interval& keys);
  static void place(const cpu::Job& job, cpu::RowOf tensor, cpu::RowPlace& place);
  static void cell(const cpu::Job& job, int position, const void*& key, const void*& value);
  template <class Number>
  static void tile(const cpu::Job& job, int first_key, cpu::TileArgs<Number>& tile);
  template <class Number>
  static void attended(const cpu::Job& job, const cpu::TileArgs<Number>& tile);
  template <class Number>
  static void fold(const cpu::Job& job, int range, const cpu::State<Number>& into,
                   const cpu::State<Number>& from);
  template <class Number>
  static void store(const cpu::Job& job, cpu::StoreArgs<Number>& rows);
  template <class Number>
  static void lse(const cpu::Job& job, const cpu::State<Number>& state, int r, float& lse);
};

}  // namespace fovea::faults
