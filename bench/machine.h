// SPDX-License-Identifier: Apache-2.0
// What the system tells about this process and those beside it (Linux).
#pragma once

#include <cstdint>

namespace fovea::bench {

// The most memory that this process has had; 0: the system does not say.
std::int64_t peak_bytes();

// How much of the machine's cores others have used since this was made: figures taken while they
// worked are no measure of this process.
class OtherLoad {
 public:
  OtherLoad();
  double share() const;  // 0 to 1 of all cores; what a hypervisor took away counts too

 private:
  struct Ticks {
    double busy = 0, all = 0, own = 0;
  };
  static Ticks now();

  Ticks begin_;
};

}  // namespace fovea::bench
