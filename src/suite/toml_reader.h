// Reads TOML from outside: every access says what was found, where, and what was expected.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "suite/toml_library.h"

namespace lockstep::suite {

Result<toml::table> parse_toml(std::string_view text, const std::string& source);

// A table of the document, and what it is called there ("engine.mine").
class TomlTable {
 public:
  TomlTable(const toml::table& table, const std::string& source, std::string place)
      : table_(&table), source_(&source), place_(std::move(place)) {}

  // "suite.toml:3:1: [engine.mine]: <what>".
  Error wrong(const std::string& what) const;
  // The same of one of its keys.
  Error wrong(std::string_view key, std::string_view expected) const;

  // A key that is none of these is an error, with near ones.
  Result<void> only(const std::vector<std::string>& keys) const;
  bool has(std::string_view key) const { return table_->contains(key); }
  const toml::table& table() const { return *table_; }
  const std::string& place() const { return place_; }
  int64_t line() const { return table_->source().begin.line; }

  Result<std::string> text(std::string_view key, std::string otherwise) const;
  Result<bool> boolean(std::string_view key, bool otherwise) const;
  Result<int64_t> integer(std::string_view key, int64_t otherwise, int64_t least,
                          int64_t most) const;
  Result<double> number(std::string_view key, double otherwise, double least, double most) const;
  // A text or several.
  Result<std::vector<std::string>> texts(std::string_view key) const;
  // Lists of whole numbers.
  Result<std::vector<std::vector<int32_t>>> number_lists(std::string_view key) const;
  // The tables of [[key]], or those of [key.*] with their names.
  Result<std::vector<TomlTable>> array_of_tables(std::string_view key) const;
  Result<std::vector<TomlTable>> tables(std::string_view key) const;

 private:
  Error at(const toml::node& node, std::string_view key, const std::string& what) const;

  const toml::table* table_;
  const std::string* source_;
  std::string place_;
};

}  // namespace lockstep::suite
