// A hash of texts of any content, one after another.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/sha256.h"
#include "suite/suite.h"

namespace lockstep::suite {

class Key {
 public:
  void add(std::string_view text) {
    const std::string length = fmt::format("{}:", text.size());
    hash_.add(std::as_bytes(std::span(length)));
    hash_.add(std::as_bytes(std::span(text)));
  }
  template <class T>
  void add_number(const T& value) {
    add(fmt::format("{}", value));
  }
  void add(const std::vector<std::string>& texts) {
    add_number(texts.size());
    for (const std::string& text : texts) add(text);
  }
  void add(const std::vector<int32_t>& numbers) {
    add_number(numbers.size());
    for (const int32_t number : numbers) add_number(number);
  }
  // All that its numbers depend on; limits are not among that.
  void add(const Engine& engine) {
    add(engine.name);
    add_number(static_cast<int>(engine.kind));
    for (const std::string& text : {engine.target, engine.folder, engine.python, engine.kv})
      add(text);
    add(engine.command);
    add(engine.options);
    add_number(engine.shell);
    add_number(engine.threads);
  }
  std::string finish() { return hash_.finish(); }  // 64 digits; call once

 private:
  Sha256 hash_;
};

}  // namespace lockstep::suite
