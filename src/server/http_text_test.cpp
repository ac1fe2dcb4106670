#include "server/http_text.h"

#include <gtest/gtest.h>

#include "server/metrics.h"
#include "server/worker.h"

namespace lockstep::server {
namespace {

TEST(HttpText, PathOfATarget) {
  EXPECT_EQ(path_of("/health"), "/health");
  EXPECT_EQ(path_of("/health?x=/y"), "/health");
  EXPECT_EQ(path_of("/a?b=http://c/d"), "/a");
  EXPECT_EQ(path_of("http://host:80/health?x"), "/health");
  EXPECT_EQ(path_of("http://host"), "/");
  EXPECT_EQ(path_of("*"), "*");
  EXPECT_EQ(path_of(""), "");
}

TEST(HttpText, Origins) {
  EXPECT_FALSE(crosses_origins("", "localhost:1"));
  EXPECT_FALSE(crosses_origins("http://localhost:1", "LocalHost:1"));
  EXPECT_TRUE(crosses_origins("http://localhost:2", "localhost:1"));
  EXPECT_TRUE(crosses_origins("null", "localhost:1"));
  EXPECT_TRUE(crosses_origins("http://evil.example", ""));
}

TEST(HttpText, BearerTokens) {
  EXPECT_TRUE(bearer_matches("Bearer abc", "abc"));
  EXPECT_TRUE(bearer_matches("bEARER  abc", "abc"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer ab", "Bearer abcd", "Bearer ABC",
                            "abc", "Basic abc", "Bearerabc"})
    EXPECT_FALSE(bearer_matches(wrong, "abc")) << wrong;
}

TEST(HttpText, Chunks) {
  EXPECT_EQ(chunk(std::string(26, 'x'), {}), "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_EQ(chunk("", {}), "");  // an empty chunk would end the answer
  EXPECT_EQ(last_chunk({}), "0\r\n\r\n");
  const AnswerForm old{.keep_alive = false, .old_version = true};
  EXPECT_EQ(chunk("x", old), "x");
  EXPECT_EQ(last_chunk(old), "");
}

// The head of an answer, without the value of its date.
std::string without_date(std::string text) {
  const size_t date = text.find("Date: ") + 6;
  EXPECT_EQ(text.substr(date).find(" GMT\r\n"), std::string("Sun, 06 Nov 1994 08:49:37").size());
  return text.erase(date, text.find("\r\n", date) - date);
}

TEST(HttpText, WholeAnswers) {
  const std::string common =
      "Server: lockstep/" LOCKSTEP_VERSION
      "\r\nDate: \r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
  const HttpResponse full = error_response({503, "QUEUE_FULL", "later", ""});
  EXPECT_EQ(without_date(whole_answer(full, {})),
            "HTTP/1.1 503 Service Unavailable\r\n" + common +
                "Connection: keep-alive\r\nRetry-After: 1\r\nContent-Type: application/json\r\n" +
                fmt::format("Content-Length: {}\r\n\r\n", full.body.size()) + full.body);
  EXPECT_EQ(without_date(whole_answer(json_response(200, {{"a", 1}}), {.head_only = true})),
            "HTTP/1.1 200 OK\r\n" + common +
                "Connection: keep-alive\r\nContent-Type: application/json\r\n"
                "Content-Length: 8\r\n\r\n");
  EXPECT_TRUE(whole_answer(json_response(499, {}), {})
                  .starts_with("HTTP/1.1 499 Client Closed Request\r\n"));
  EXPECT_EQ(without_date(events_head({})),
            "HTTP/1.1 200 OK\r\n" + common +
                "Connection: keep-alive\r\nContent-Type: text/event-stream\r\n"
                "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(without_date(events_head({.keep_alive = false, .old_version = true})),
            "HTTP/1.1 200 OK\r\n" + common +
                "Connection: close\r\nContent-Type: text/event-stream\r\n\r\n");
}

TEST(SafeName, IsAFileNameOfItsOwn) {
  EXPECT_EQ(safe_name("job-1_a.b"), "job-1_a.b");
  EXPECT_EQ(safe_name(".."), "%2E.");
  EXPECT_EQ(safe_name("../x"), "%2E.%2Fx");
  EXPECT_EQ(safe_name("a~2"), "a%7E2");  // nobody gets the name of another's second trace
  EXPECT_EQ(safe_name(std::string_view("\0", 1)), "%00");
  const std::string a = safe_name(std::string(256, 'x') + "a");
  const std::string b = safe_name(std::string(256, 'x') + "b");
  EXPECT_NE(a, b);
  EXPECT_LT(a.size(), 200u);
}

TEST(Metrics, HistogramsAddUp) {
  Histogram histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 7.0}) histogram.add(value);
  EXPECT_EQ(histogram.render("h", "Help."),
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 3\n"
            "h_bucket{le=\"+Inf\"} 4\nh_sum 10\nh_count 4\n");
  EXPECT_EQ(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}

TEST(Log, LinesAreOneLineAndShowNoControls) {
  LogEntry entry;
  entry.remote = "::1";
  entry.method = "POST";
  entry.path = "/x\n\x1b[0m";
  entry.status = 200;
  entry.job_id = "a\nb";
  entry.outcome = "end";
  for (const std::string& line : {text_line(entry), json_line(entry)}) {
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
  }
  EXPECT_EQ(nlohmann::json::parse(json_line(entry))["job_id"], "a\nb");
  entry.method = "";
  EXPECT_TRUE(text_line(entry).starts_with("::1 - ")) << text_line(entry);
}

}  // namespace
}  // namespace lockstep::server
