// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_detection.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea {
namespace detail {

CpuLevel cpu_level(const CpuWords& words) {
  const auto has = [](std::uint64_t word, std::initializer_list<int> bits) {
    return std::all_of(bits.begin(), bits.end(), [&](int b) { return ((word >> b) & 1) != 0; });
  };
  const bool ymm_state = has(words.xcr0, {1, 2});
  const bool zmm_state = has(words.xcr0, {5, 6, 7});
  const bool tile_state = has(words.xcr0, {17, 18}) && words.tiles_on_request;
  // FMA, OSXSAVE, AVX, F16C; AVX2.
  if (!ymm_state || !has(words.leaf1_ecx, {12, 27, 28, 29}) || !has(words.leaf7_ebx, {5})) {
    return CpuLevel::kPortable;
  }
  // AVX512 F, DQ, BW, VL.
  if (!zmm_state || !has(words.leaf7_ebx, {16, 17, 30, 31})) return CpuLevel::kAvx2;
  if (!has(words.leaf7_1_eax, {5})) return CpuLevel::kAvx512;  // AVX512_BF16
  // AMX-BF16, AMX-TILE.
  if (!tile_state || !has(words.leaf7_edx, {22, 24})) return CpuLevel::kAvx512Bf16;
  return CpuLevel::kAmx;
}

namespace {
std::string_view without_blanks(std::string_view s) {
  const std::size_t begin = s.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t\n") - begin + 1);
}

std::optional<std::int64_t> positive_number(std::string_view s) {
  s = without_blanks(s);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc{} || end != s.data() + s.size() || value <= 0) return std::nullopt;
  return value;
}
}  // namespace

std::optional<int> quota_cores(std::string_view quota_us, std::string_view period_us) {
  const auto quota = positive_number(quota_us), period = positive_number(period_us);
  if (!quota || !period) return std::nullopt;
  const std::int64_t cores = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(cores, std::numeric_limits<int>::max()));
}

std::optional<int> quota_cores(std::string_view cpu_max) {
  cpu_max = without_blanks(cpu_max);
  const std::size_t blank = cpu_max.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  return quota_cores(cpu_max.substr(0, blank), cpu_max.substr(blank + 1));
}

}  // namespace detail

namespace {

#if defined(__x86_64__)
// XGETBV of register 0; only valid if CPUID reports OSXSAVE. As assembly, because the intrinsic
// wants a compiler flag that would let the compiler use newer instructions elsewhere.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Linux hands out tile data only to a process that asks for it (whoever runs AMX kernels does);
// here only whether it would.
bool tiles_on_request() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kGetSupportedStates = 0x1021;  // ARCH_GET_XCOMP_SUPP
  std::uint64_t states = 0;
  return syscall(SYS_arch_prctl, kGetSupportedStates, &states) == 0 && ((states >> 18) & 1) != 0;
#else
  return false;
#endif
}

detail::CpuWords read_cpu() {
  detail::CpuWords words;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf1_ecx = ecx;
  if (((ecx >> 27) & 1) != 0) words.xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf7_ebx = ebx;
  words.leaf7_edx = edx;
  if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  words.tiles_on_request = tiles_on_request();
  return words;
}
#else
detail::CpuWords read_cpu() { return {}; }
#endif

// Cores that the scheduler may put this process on.
int affinity_cores() {
#if defined(__linux__)
  constexpr std::size_t kMostWords = 4096;  // 262144 cores
  for (std::size_t num_words = 16; num_words <= kMostWords; num_words *= 4) {
    // The kernel refuses a mask that is shorter than its own.
    std::vector<unsigned long> mask(num_words);
    const std::size_t bytes = num_words * sizeof(mask[0]);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, bytes, set) == 0) return std::max(1, CPU_COUNT_S(bytes, set));
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

#if defined(__linux__)
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The quota of one control group directory, of the unified or of the older kind.
std::optional<int> quota_at(const std::string& directory) {
  if (const auto cores = detail::quota_cores(first_line(directory + "/cpu.max"))) return cores;
  return detail::quota_cores(first_line(directory + "/cpu.cfs_quota_us"),
                             first_line(directory + "/cpu.cfs_period_us"));
}

// The smallest quota from `group` up to the mount point. A container may see the path of the host,
// of which its mount holds no part; then only the mount point answers.
std::optional<int> smallest_quota(const std::string& mount, std::string group) {
  std::optional<int> smallest;
  while (true) {
    const std::optional<int> cores = quota_at(mount + group);
    if (cores && (!smallest || *cores < *smallest)) smallest = cores;
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return smallest;
    group.resize(slash);
  }
}

// Cores that the control group's quota amounts to; nothing if there is none to be found.
std::optional<int> quota_of_process() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<int> smallest;
  for (std::string line; std::getline(file, line);) {  // "0::/group" or "4:cpu,cpuacct:/group"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool unified = kinds == ",,";
    if (!unified && kinds.find(",cpu,") == std::string::npos) continue;
    for (const char* mount :
         {unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
      const std::optional<int> cores = smallest_quota(mount, line.substr(second + 1));
      if (cores && (!smallest || *cores < *smallest)) smallest = cores;
    }
  }
  return smallest;
}
#else
std::optional<int> quota_of_process() { return std::nullopt; }
#endif

}  // namespace

std::string_view name_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::kPortable:
      return "portable";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx512Bf16:
      return "avx512_bf16";
    case CpuLevel::kAmx:
      return "amx";
  }
  return "unknown";  // a number that is no enumerator
}

Device Device::host() {
  Device device;
  device.cpu_level = detail::cpu_level(read_cpu());
  const int cores = affinity_cores();
  device.num_cores = std::min(cores, quota_of_process().value_or(cores));
  return device;
}

std::string name_of(const Device& device) {
  if (device.id.type == DeviceType::kCuda) {
    return fmt::format("sm_{}{}", device.cc_major, device.cc_minor);
  }
  return fmt::format("cpu {}", name_of(device.cpu_level));
}

}  // namespace fovea
