// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <gtest/gtest.h>

#include "fovea/engine/model_info.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

TEST(Model, RefusesAnUnknownArchitectureByName) {
  const auto bytes = test::GgufWriter("mamba").bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { read_header(file, {}); }, [&] { load_model(file, {}); },
           [&] { inspect(file, DType::kF32, "auto", 16); }}) {
    try {
      call();
      FAIL() << "accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(error.given(), "'mamba'");
      EXPECT_NE(error.expected().find("llama"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace fovea::engine
