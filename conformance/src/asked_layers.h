// SPDX-License-Identifier: Apache-2.0
// What a row says, and layers made for it: the plain one, and those that ask for one thing more.
#pragma once

#include <functional>
#include <optional>

#include "fovea/attention/capability.h"
#include "fovea/attention/layer.h"

namespace fovea::conformance {

// Whether a row's kernels run on a machine. Calls are in host memory, so none of a GPU do.
bool runs_on(const fovea::Row& row, const Device& device);

// Head sizes of values that the row admits: those of keys if it names no others.
const Sizes& sizes_v(const fovea::Row& row);

// A layer of sizes and types that a row offers and does not exclude, with nothing optional on. If
// there is none, one that the row excludes.
LayerSpec plain_layer(const fovea::Row& row);

// How a layer asks for a feature; none if it cannot.
std::function<void(LayerSpec&)> asking_for(Feature f);

// What an exclusion is about.
struct Excluded {
  LayerSpec layer = {};
  Problem problem = {};           // the layer's, and what no layer can ask for
  bool is_asked_by_layer = true;  // the problem is the layer's
};
// The row's plain layer, with values that the row offers and for which all terms hold; none if
// there are none.
std::optional<Excluded> excluded_by(const Exclusion& exclusion, const fovea::Row& row,
                                    const Device& device);

}  // namespace fovea::conformance
