// SPDX-License-Identifier: Apache-2.0
#include "stop_matcher.h"

#include <algorithm>
#include <utility>

#include "fovea/base/error.h"

namespace fovea::engine {

// One step of Knuth, Morris and Pratt's search, in text that is never read twice.
void StopMatcher::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte)
    stop.matched = stop.fallback[stop.matched - 1];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) {
    if (text.empty())
      throw InputError("stop string " + std::to_string(stops_.size()), "an empty text",
                       "at least one character");
    Stop stop = {.text = std::move(text), .fallback = {0}};
    // The string searched for in itself, from its second byte on.
    for (std::size_t i = 1; i < stop.text.size(); ++i) {
      advance(stop, stop.text[i]);
      stop.fallback.push_back(stop.matched);
    }
    stop.matched = 0;
    stops_.push_back(std::move(stop));
  }
}

StopMatcher::Out StopMatcher::push(std::string_view text) {
  if (stopped_) return {.text = {}, .stopped = true};
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t found = 0;
    for (Stop& stop : stops_) {
      advance(stop, text[i]);
      if (stop.matched == stop.text.size()) found = std::max(found, stop.matched);
    }
    if (found == 0) continue;
    held_.append(text.substr(0, i + 1));
    held_.resize(held_.size() - found);
    stopped_ = true;
    return {.text = std::exchange(held_, {}), .stopped = true};
  }
  std::size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  held_.append(text);
  Out out = {.text = held_.substr(0, held_.size() - keep)};
  held_.erase(0, out.text.size());
  return out;
}

std::string StopMatcher::finish() {
  for (Stop& stop : stops_) stop.matched = 0;
  stopped_ = false;
  return std::exchange(held_, {});
}

}  // namespace fovea::engine
