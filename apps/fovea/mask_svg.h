// SPDX-License-Identifier: Apache-2.0
// A mask as an SVG: one file that explains itself, the same bytes for the same scene.
#pragma once

#include <string>

#include "fovea/mask_scene.h"

namespace fovea::app {

// Up to 128 keys and 128 queries are drawn one by one, their tiles as outlines; else tiles are
// filled by class. Requests stand one below the other.
std::string mask_svg(const MaskScene& scene);

}  // namespace fovea::app
