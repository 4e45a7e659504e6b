// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/device.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "base/cpu_detection.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace fovea {
namespace {

constexpr std::uint32_t bit(int index) { return std::uint32_t{1} << index; }

// A processor and system with all that any level asks for.
detail::CpuWords everything() {
  detail::CpuWords w;
  w.leaf1_ecx = bit(12) | bit(27) | bit(28) | bit(29);
  w.leaf7_ebx = bit(5) | bit(16) | bit(17) | bit(30) | bit(31);
  w.leaf7_edx = bit(22) | bit(24);
  w.leaf7_1_eax = bit(5);
  w.xcr0 = 0x600E7;
  w.tiles_on_request = true;
  return w;
}

TEST(CpuLevel, NeedsAllOfItsInstructions) {
  EXPECT_EQ(detail::cpu_level({}), CpuLevel::kPortable);
  EXPECT_EQ(detail::cpu_level(everything()), CpuLevel::kAmx);
  for (const int b : {12, 27, 28, 29}) {  // FMA, OSXSAVE, AVX, F16C
    auto w = everything();
    w.leaf1_ecx &= ~bit(b);
    EXPECT_EQ(detail::cpu_level(w), CpuLevel::kPortable) << b;
  }
  auto w = everything();
  w.leaf7_ebx &= ~bit(5);  // AVX2
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kPortable);
  for (const int b : {16, 17, 30, 31}) {  // AVX512 F, DQ, BW, VL
    w = everything();
    w.leaf7_ebx &= ~bit(b);
    EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx2) << b;
  }
  w = everything();
  w.leaf7_1_eax = 0;  // AVX512_BF16
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx512);
  for (const int b : {22, 24}) {  // AMX-BF16, AMX-TILE
    w = everything();
    w.leaf7_edx &= ~bit(b);
    EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx512Bf16) << b;
  }
}

TEST(CpuLevel, NeedsTheSystemToSaveTheRegisters) {
  auto w = everything();
  w.xcr0 = 0;
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kPortable);
  w.xcr0 = 0x3;  // x87 and SSE
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kPortable);
  w.xcr0 = 0x7;  // and ymm
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx2);
  w.xcr0 = 0x67;  // and zmm, but not its upper sixteen registers
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx2);
  w.xcr0 = 0xE7;
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx512Bf16);
  w.xcr0 = 0x200E7;  // tile configuration without tile data
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx512Bf16);
  w = everything();
  w.tiles_on_request = false;
  EXPECT_EQ(detail::cpu_level(w), CpuLevel::kAvx512Bf16);
}

TEST(CpuLevel, Names) {
  EXPECT_EQ(name_of(CpuLevel::kPortable), "portable");
  EXPECT_EQ(name_of(CpuLevel::kAvx2), "avx2");
  EXPECT_EQ(name_of(CpuLevel::kAvx512), "avx512");
  EXPECT_EQ(name_of(CpuLevel::kAvx512Bf16), "avx512_bf16");
  EXPECT_EQ(name_of(CpuLevel::kAmx), "amx");
  EXPECT_EQ(name_of(static_cast<CpuLevel>(77)), "unknown");
}

TEST(QuotaCores, UnifiedGroups) {
  EXPECT_EQ(detail::quota_cores("200000 100000\n"), 2);
  EXPECT_EQ(detail::quota_cores("150000 100000"), 2);  // rounded up
  EXPECT_EQ(detail::quota_cores("1000 100000"), 1);
  EXPECT_EQ(detail::quota_cores("max 100000"), std::nullopt);
  for (const char* text : {"", " ", "\n", "100000", "x y", "-5 100", "100 0", "1 2 3", "1e5 100000",
                           "99999999999999999999 1"}) {
    EXPECT_EQ(detail::quota_cores(text), std::nullopt) << text;
  }
  EXPECT_EQ(detail::quota_cores("9223372036854775807 1"), 2147483647);
}

TEST(QuotaCores, OlderGroups) {
  EXPECT_EQ(detail::quota_cores("250000", "100000"), 3);
  EXPECT_EQ(detail::quota_cores("-1", "100000"), std::nullopt);
  EXPECT_EQ(detail::quota_cores("", ""), std::nullopt);
}

TEST(Device, Names) {
  Device cpu;
  cpu.cpu_level = CpuLevel::kAvx512Bf16;
  EXPECT_EQ(name_of(cpu), "cpu avx512_bf16");
  Device gpu;
  gpu.id = {DeviceType::kCuda, 3};
  gpu.cc_major = 9;
  EXPECT_EQ(name_of(gpu), "sm_90");
  gpu.cc_major = 12;
  gpu.cc_minor = 1;
  EXPECT_EQ(name_of(gpu), "sm_121");
}

TEST(Device, IsAValue) {
  Device a, b;
  EXPECT_EQ(a, b);
  b.num_cores = 7;
  EXPECT_NE(a, b);
}

TEST(Host, IsTheCpuAndDoesNotChange) {
  const Device host = Device::host();
  EXPECT_EQ(host.id, DeviceId{});
  EXPECT_GE(host.num_cores, 1);
  EXPECT_EQ(host, Device::host());
}

#if defined(__linux__) && defined(__x86_64__)
std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

TEST(Host, AgreesWithTheKernel) {
  const auto flags = kernel_flags();
  ASSERT_FALSE(flags.empty());
  const auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (flags.count(name) == 0) return false;
    }
    return true;
  };
  CpuLevel expected = CpuLevel::kPortable;
  if (all({"avx", "avx2", "fma", "f16c"})) expected = CpuLevel::kAvx2;
  if (expected == CpuLevel::kAvx2 && all({"avx512f", "avx512dq", "avx512bw", "avx512vl"})) {
    expected = CpuLevel::kAvx512;
  }
  if (expected == CpuLevel::kAvx512 && all({"avx512_bf16"})) expected = CpuLevel::kAvx512Bf16;
  const CpuLevel level = Device::host().cpu_level;
  if (level == CpuLevel::kAmx) {
    EXPECT_TRUE(all({"amx_tile", "amx_bf16"}));
    EXPECT_EQ(expected, CpuLevel::kAvx512Bf16);
  } else {
    EXPECT_EQ(level, expected);
  }
}
#endif

#if defined(__linux__)
TEST(Host, CountsTheCoresThatTheSchedulerMayUse) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_LE(Device::host().num_cores, CPU_COUNT(&allowed));
  int cores = 0;
  std::thread([&] {  // the mask is a thread's own
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) cores = Device::host().num_cores;
  })
      .join();
  EXPECT_EQ(cores, 1);
}
#endif

}  // namespace
}  // namespace fovea
