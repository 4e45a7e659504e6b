// SPDX-License-Identifier: Apache-2.0
// The pure parts of looking at a processor, apart from the machine so that tests can give them any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/base/device.h"

namespace fovea::detail {

// What an x86-64 processor and its operating system say.
struct CpuWords {
  std::uint32_t leaf1_ecx = 0;                 // CPUID 1
  std::uint32_t leaf7_ebx = 0, leaf7_edx = 0;  // CPUID 7, subleaf 0
  std::uint32_t leaf7_1_eax = 0;               // CPUID 7, subleaf 1
  std::uint64_t xcr0 = 0;         // register state that the system saves; 0 without XGETBV
  bool tiles_on_request = false;  // the system gives AMX tile data to a process that asks
};
CpuLevel cpu_level(const CpuWords& words);

// Cores that a CPU quota amounts to, rounded up; nothing if there is no limit or the text is not
// one. The texts are those of the files cpu.max ("150000 100000", "max 100000") and of
// cpu.cfs_quota_us with cpu.cfs_period_us ("-1" and "100000").
std::optional<int> quota_cores(std::string_view quota_us, std::string_view period_us);
std::optional<int> quota_cores(std::string_view cpu_max);

}  // namespace fovea::detail
