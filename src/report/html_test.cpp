// The page of a report: its data.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <zlib.h>

#include "base/random.h"
#include "report/packed.h"
#include "report/test_comparisons.h"

namespace lockstep::report {
namespace {

nlohmann::json page_data(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t first = page.find(open) + open.size();
  const std::string block = page.substr(first, page.find("</script>", first) - first);
  EXPECT_EQ(block.find('<'), std::string::npos);
  return nlohmann::json::parse(block);
}

std::vector<uint16_t> codes_of(const std::string& text) {
  std::vector<unsigned char> packed_bytes(text.size());
  const int length =
      EVP_DecodeBlock(packed_bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  std::vector<uint16_t> out(1 << 22);
  uLongf size = 2 * out.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &size, packed_bytes.data(),
                       static_cast<uLong>(length)),
            Z_OK);
  out.resize(size / 2);
  return out;
}

TEST(Html, IsOnePageWithoutAnythingFromElsewhere) {
  const std::string page = html_report(defective(), subject());
  for (const char* part : {"https:", "src=", "href=", "@import", "url(", "\nimport ", "\nexport "})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  // The name of SVG, which nobody asks for.
  EXPECT_EQ(page.find("http:"), page.rfind("http:"));
  for (const char* part : {"id=\"story\"", "id=\"map\"", "id=\"tokens\"", "id=\"cell\"",
                           "id=\"drift\"", "prefers-color-scheme", "@media print"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // Nothing was compared: still a page.
  EXPECT_NE(html_report(Comparison(), subject()).find("</html>"), std::string::npos);
  EXPECT_EQ(page_data(html_report(Comparison(), subject()))["page"]["positions"],
            nlohmann::json::array());
}

// Two checkpoints: one with a row that is wrong, one that a side lacks at position 5.
Comparison with_rows() {
  Comparison c = defective();
  c.checkpoints.resize(2);
  CheckpointResult& first = c.checkpoints[0];
  first.rows.compared = {{0, 0.0F, 0.0F}, {1, 0.5F, 2.0F}, {4, INFINITY, 0.0F}};
  first.reference.rows = {{0, 0.0F, 0.0F}, {1, 0.25F, 0.0F}};
  first.suspect.rows = {{0, 0.0F, 0.0F}, {1, 1024.0F, 1.0F}, {9, INFINITY, 0.0F}};
  first.rows.allowed = 0.25;
  c.checkpoints[1].rows.only_suspect = {5};
  c.reference_tokens = {{7, 8, 9}, 2, {"a</script><b>", "<!--", "\xff"}};
  c.suspect_tokens = {{7, 8, 3}, 2, {}};
  c.logits = {{1, {9, 3, 0.5, 0.25, 0.125, 1}}};
  return c;
}

TEST(Html, HoldsEveryRow) {
  const nlohmann::json data = page_data(html_report(with_rows(), subject()));
  EXPECT_EQ(data["headline"],
            nlohmann::json::parse(json_report(with_rows(), subject()))["headline"]);
  const nlohmann::json& page = data["page"];
  EXPECT_EQ(page["positions"], nlohmann::json({{0, 1}, {4, 5}, {9, 9}}));
  EXPECT_EQ(page["group"], 1);
  constexpr uint16_t kOne = 16384;
  // Positions 0, 1, 4, 5, 9 of both checkpoints.
  EXPECT_EQ(codes_of(page["rows"]["own_reference"]),
            (std::vector<uint16_t>{2, kOne - 32, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(codes_of(page["rows"]["own_suspect"]),
            (std::vector<uint16_t>{2, kOne + 160, 1, 0, 65535, 0, 0, 0, 1, 0}));
  EXPECT_EQ(codes_of(page["rows"]["relative_l2"]),
            (std::vector<uint16_t>{2, kOne - 16, 65535, 0, 1, 0, 0, 0, 0, 0}));
  // Of a difference of 2 an own error of 1 leaves sqrt(3).
  EXPECT_EQ(codes_of(page["rows"]["inherited"]),
            (std::vector<uint16_t>{2, kOne - 19, 1, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(page["tokens"]["reference"]["texts"][0], "a</script><b>");
  EXPECT_TRUE(page["tokens"]["suspect"]["texts"].is_null());
  EXPECT_EQ(page["logits"], nlohmann::json::parse("[[1, 9, 3, 0.5, 0.25, 0.125]]"));
  EXPECT_EQ(page["explained"], nlohmann::json({0.25, 0.25}));
  EXPECT_NE(page["formulas"]["q"]["formula"].get<std::string>().find("attn_q.weight"),
            std::string::npos);
}

TEST(Html, ItsDataAreBoundedAndItSaysWhatIsLeftOut) {
  Comparison c = with_rows();
  parity::OpenedRow row;
  row.checkpoint = "embedding";
  row.side = Side::kSuspect;
  row.ratio = 5;
  row.index.resize(1000);
  row.recorded.resize(1000);
  row.errors.resize(1000);
  c.opened.assign(300, row);
  c.not_opened = 17;
  Random random(7);
  for (int64_t position = 10; position < 100'000; ++position)
    c.checkpoints[0].rows.compared.push_back(
        {position, static_cast<float>(std::exp2(120 * random.uniform() - 60)), 1.0F});
  const nlohmann::json large = page_data(html_report(c, subject()))["page"];
  EXPECT_EQ(large["group"], 1);
  EXPECT_EQ(large["opened"].size(), 300u);
  EXPECT_EQ(large["left_out"],
            nlohmann::json({"The numbers of 300 rows are shown, the worst ones; 17 more that are "
                            "wrong are left out."}));
  constexpr int64_t kLimit = 200'000;
  const nlohmann::json whole = page_data(html_report(c, subject(), kLimit));
  const nlohmann::json& small = whole["page"];
  EXPECT_LT(std::ssize(whole.dump()), kLimit);
  EXPECT_LT(small["opened"].size(), 20u);
  EXPECT_GT(small["opened"].size(), 0u);
  const auto group = small["group"].get<size_t>();
  ASSERT_GT(group, 1u);
  ASSERT_EQ(small["left_out"].size(), 2u);
  EXPECT_EQ(
      small["left_out"][0],
      fmt::format("The map has a column for every {} positions, which shows the worst of them.",
                  group));
  const auto one = codes_of(large["rows"]["relative_l2"]);
  const auto merged = codes_of(small["rows"]["relative_l2"]);
  const size_t columns = 100'000 - 10 + 5;
  ASSERT_EQ(one.size(), 2 * columns);
  ASSERT_EQ(merged.size(), 2 * ((columns + group - 1) / group));
  for (size_t i = 0; i < merged.size() / 2; ++i) {
    const auto first = one.begin() + static_cast<int64_t>(i * group);
    const auto last = one.begin() + static_cast<int64_t>(std::min((i + 1) * group, columns));
    EXPECT_EQ(merged[i], *std::max_element(first, last));
  }
}

TEST(Packed, SizesKeepTheirOrder) {
  EXPECT_EQ(size_code(0), kZeroCode);
  EXPECT_EQ(size_code(NAN), kInfiniteCode);
  EXPECT_EQ(size_code(INFINITY), kInfiniteCode);
  EXPECT_EQ(size_code(5e-324), kZeroCode + 1);
  EXPECT_LT(size_code(1e308), kInfiniteCode);
  for (double value = 1e-30; value < 1e30; value *= 1.37) {
    const double back = std::exp2((size_code(value) - 16384) / 16.0);
    EXPECT_NEAR(back / value, 1, 0.022);
    EXPECT_LE(size_code(value), size_code(value * 1.01));
  }
}

}  // namespace
}  // namespace lockstep::report
