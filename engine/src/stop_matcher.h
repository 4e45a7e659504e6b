// SPDX-License-Identifier: Apache-2.0
// Ends a stream of text at the first of some stop strings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::engine {

// The match that ends first counts, and of those that end together the longest: this is the one
// that is known first when the text comes byte by byte, so the result does not depend on how the
// text is cut into pieces. It works on bytes; if the pieces and the stop strings hold whole UTF-8
// characters, so does all that is handed out. For one thread at a time.
class StopMatcher {
 public:
  struct Out {
    std::string text;      // what no stop string can take any more
    bool stopped = false;  // a stop string was found, now or before
  };

  // No stop strings: all text passes. InputError for an empty one.
  explicit StopMatcher(std::vector<std::string> stops);

  // What can still become a stop string is held back. At a match the text before it is handed out;
  // the stop string and all that follows are dropped. Linear time, times the number of stop
  // strings.
  Out push(std::string_view text);
  // The stream is over: the text that was held back (nothing after a match). The matcher is then as
  // new.
  std::string finish();

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: the longest text that begins and ends text[0, i]
    std::size_t matched = 0;            // bytes at the end of the stream that begin `text`
  };
  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;  // the end of the stream that begins a stop string
  bool stopped_ = false;
};

}  // namespace fovea::engine
