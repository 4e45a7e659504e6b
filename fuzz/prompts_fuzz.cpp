// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of prompts: it is refused with a UsageError, or its prompts can be printed.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/command.h"
#include "fovea/prompts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    for (const fovea::app::Prompt& prompt : fovea::app::read_prompts(in, "p.jsonl")) {
      const std::string id = prompt.id.dump();
      // A document's text reads as the same document.
      if (nlohmann::ordered_json::parse(id).dump() != id) throw std::logic_error("id " + id);
    }
  } catch (const fovea::app::UsageError& error) {
    if (!std::string_view(error.what()).starts_with("p.jsonl"))
      throw std::logic_error("a refusal that does not name the file");
  }
  return 0;
}
