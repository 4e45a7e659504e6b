// SPDX-License-Identifier: Apache-2.0
// Where memory lives, in what order work runs, and what a machine can do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea {

enum class DeviceType : std::uint8_t { kCpu, kCuda };

// A place: host memory, or one GPU.
struct DeviceId {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  friend bool operator==(DeviceId, DeviceId) = default;
};

// A queue of work on a device, not owned. On the CPU it is trivial: work is done when a call
// returns.
struct Stream {
  DeviceId device = {};
  void* native = nullptr;  // cudaStream_t on a GPU
};

// Instruction sets a CPU kernel may be written for, each containing those before it.
enum class CpuLevel : std::uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view name_of(CpuLevel level);  // portable, avx2, avx512, avx512_bf16, amx

// What selection knows about a machine. A value: tests make devices that are not there.
struct Device {
  DeviceId id = {};
  int cc_major = 0, cc_minor = 0;  // compute capability of a GPU
  CpuLevel cpu_level = CpuLevel::kPortable;
  // Cores that this process may use (affinity mask and CPU quota), or streaming multiprocessors.
  int num_cores = 1;

  // The machine that this process runs on, with what its operating system lets it use.
  static Device host();
  friend bool operator==(const Device&, const Device&) = default;
};
std::string name_of(const Device& device);  // "cpu avx512_bf16", "sm_90"

}  // namespace fovea
