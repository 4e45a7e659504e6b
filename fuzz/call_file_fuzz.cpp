// SPDX-License-Identifier: Apache-2.0
// Any bytes as a call file, and what begins with '{' as the document in one too: it is refused with
// an InputError that says why, or the call comes back from its own bytes.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "call_json.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call_file.h"

namespace {

using fovea::conformance::Call;

// What is thrown besides an InputError comes out and is a finding.
template <class F>
void unless_refused(std::string_view begin, const F& use) {
  try {
    use();
  } catch (const fovea::InputError& error) {
    const std::string_view said = error.what();
    if (said.size() <= begin.size() || !said.starts_with(begin))
      throw std::logic_error("a refusal that does not say of what");
  }
}

void expect_back(const Call& call) {
  if (!(fovea::conformance::parse_call(to_bytes(call), "f.call") == call))
    throw std::logic_error("another call comes back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  unless_refused("f.call: ", [&] { expect_back(fovea::conformance::parse_call(bytes, "f.call")); });
  if (bytes.starts_with('{'))
    unless_refused("", [&] { expect_back(fovea::conformance::from_document(bytes)); });
  return 0;
}
