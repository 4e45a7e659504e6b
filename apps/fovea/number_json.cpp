// SPDX-License-Identifier: Apache-2.0
#include "fovea/number_json.h"

#include <cmath>

namespace fovea::app {

nlohmann::ordered_json number_json(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

}  // namespace fovea::app
