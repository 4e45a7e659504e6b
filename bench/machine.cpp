// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>

namespace fovea::bench {

std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "VmHWM:") {
  }
  std::int64_t kib = 0;
  status >> kib;
  return kib * 1024;
}

OtherLoad::OtherLoad() : begin_(now()) {}

OtherLoad::Ticks OtherLoad::now() {
  // "cpu" and the ticks of all cores: user, nice, system, idle, waiting for disks, interrupts
  // twice, stolen; what follows is contained in the first two.
  constexpr int kKinds = 8, kIdle = 3, kDisks = 4;
  constexpr double kTicksPerSecond = 100;  // Linux, wherever it reports them
  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;
  Ticks ticks;
  double count = 0;
  for (int kind = 0; kind < kKinds && stat >> count; ++kind) {
    ticks.all += count;
    if (kind != kIdle && kind != kDisks) ticks.busy += count;
  }
  ticks.own = static_cast<double>(std::clock()) / CLOCKS_PER_SEC * kTicksPerSecond;
  return ticks;
}

double OtherLoad::share() const {
  const Ticks end = now();
  const double all = end.all - begin_.all;
  const double others = (end.busy - begin_.busy) - (end.own - begin_.own);
  return all <= 0 ? 0 : std::clamp(others / all, 0.0, 1.0);
}

}  // namespace fovea::bench
