// SPDX-License-Identifier: Apache-2.0
#include "fovea/svg.h"

#include <gtest/gtest.h>

#include "apps/xml_check.h"

namespace fovea::app {
namespace {

TEST(XmlCheck, CanFail) {
  EXPECT_EQ(xml_problem("<a b=\"1\"><c/>x &lt; y</a>\n"), "");
  for (const char* bad :
       {"", "x", "<a>", "<a></b>", "</a>", "<a/><b/>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>",
        "<a>&</a>", "<a>></a>", "<a", "<a/>x", "<a b=\"&\"/>", "<A/>"})
    EXPECT_NE(xml_problem(bad), "") << bad;
}

TEST(Svg, PathsHoldBoxesAndLines) {
  SvgPath path;
  EXPECT_EQ(path.text("fill=\"red\""), "");
  path.add({1, 2, 3, 4});
  path.add({1, 2, 0, 4});
  path.add({1, 2, 3, -1});
  path.line(5, 6, 7, 8);
  EXPECT_EQ(path.text("fill=\"red\""), "<path fill=\"red\" d=\"M1 2h3v4h-3zM5 6L7 8\"/>\n");
}

TEST(Svg, BordersAreTakenOffWhereThereIsRoom) {
  const auto same = [](const Box& a, const Box& b) {
    return a.x == b.x && a.y == b.y && a.width == b.width && a.height == b.height;
  };
  EXPECT_TRUE(same(inset({0, 0, 10, 8}, 2), {2, 2, 6, 4}));
  EXPECT_TRUE(same(inset({0, 0, 10, 4}, 2), {0, 0, 10, 4}));
  EXPECT_TRUE(same(inset({1, 1, 0, 0}, 2), {1, 1, 0, 0}));
}

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(
      svg_text({.x = 1, .y = 2, .size = 9, .anchor = "end", .look = "fill=\"red\""}, "a<b>&c"),
      "<text x=\"1\" y=\"2\" font-size=\"9\" text-anchor=\"end\" fill=\"red\">"
      "a&lt;b&gt;&amp;c</text>\n");
  EXPECT_EQ(svg_text_width("", 12), 0);
  EXPECT_GT(svg_text_width("ten tokens", 12), 60);
}

TEST(Svg, APageIsOneDocument) {
  const std::string page =
      svg_page(30, 20, "a & b", svg_box({1, 2, 3, 4}, "fill=\"red\"") + svg_text({}, "<"));
  EXPECT_EQ(xml_problem(page), "") << page;
  EXPECT_EQ(page.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"30\" height=\"20\"", 0),
            0U);
  EXPECT_NE(page.find("<title>a &amp; b</title>"), std::string::npos);
}

}  // namespace
}  // namespace fovea::app
