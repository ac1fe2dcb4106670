// Values that a chat template computes with. They behave as Python's do, since that is what the
// templates were written for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep::jinja {

struct Place {
  int32_t line = 0;
  int32_t column = 0;
};

// Thrown inside the interpreter only, where an error may come out of any depth of an expression;
// ChatTemplate turns it into a Result. A place of line 0 is filled in by who runs the node.
struct TemplateError {
  std::string message;
  Place place = {};
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{fmt::format(format, std::forward<Args>(args)...)};
}

// What a hostile template may use up. One unit is about a nanosecond, and at least one byte of what
// it allocates; a node evaluated costs kNodeCost, a list element kElementCost. Counted, not
// measured, so that a template fails everywhere or nowhere.
class Budget {
 public:
  static constexpr uint64_t kNodeCost = 64;
  static constexpr uint64_t kElementCost = 48;
  static constexpr uint64_t kPartCost = 160;   // a text of its own, cut out of another
  static constexpr uint64_t kPointCost = 16;   // a character looked at by itself
  static constexpr uint64_t kEscapeCost = 96;  // one that is written as an escape

  explicit Budget(uint64_t units) : left_(units) {}
  void spend(uint64_t units) {
    if (units > left_)
      fail("the template does more work than is allowed: at most about 50 ms and 64 MB");
    left_ -= units;
  }
  // For a search of `part` in `text`, at the worst.
  void spend_search(size_t text, size_t part) {
    if (part <= text) spend((text - part + 1) * (4 + part / 8));
  }

 private:
  uint64_t left_;
};

constexpr int32_t kMaxValueDepth = 200;  // lists in lists; also bounds recursion over values

struct Undefined {
  std::shared_ptr<const std::string> reason;  // what to say when it is used; may be null
};
struct None {};
struct List;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;
using Text = std::shared_ptr<const std::string>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;

struct Value {
  std::variant<Undefined, None, bool, int64_t, double, Text, ListPtr, DictPtr,
               std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
               std::shared_ptr<LoopState>>
      data;

  Value() = default;
  Value(None none) : data(none) {}
  Value(bool flag) : data(flag) {}
  Value(int64_t number) : data(number) {}
  Value(double number) : data(number) {}
  Value(std::string text) : data(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(ListPtr list) : data(std::move(list)) {}
  Value(DictPtr dict) : data(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> space) : data(std::move(space)) {}
  Value(std::shared_ptr<const Callable> callable) : data(std::move(callable)) {}
  Value(std::shared_ptr<LoopState> loop) : data(std::move(loop)) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  const std::string* text() const { return is<Text>() ? as<Text>()->get() : nullptr; }
  const List* list() const { return is<ListPtr>() ? as<ListPtr>()->get() : nullptr; }
  const Dict* dict() const { return is<DictPtr>() ? as<DictPtr>()->get() : nullptr; }
};

// Everything that Python iterates in order. Generators can be walked once and have no length.
enum class ListKind { kList, kTuple, kGenerator, kView, kRange };

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int32_t depth = 1;
  mutable bool consumed = false;
};

class DictBuilder;

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  int32_t depth = 1;

  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;

 private:
  friend class DictBuilder;
  std::unordered_map<std::string_view, size_t> texts_;  // views into the keys, which are shared
  std::vector<size_t> others_;                          // keys that are not strings
};

class DictBuilder {
 public:
  explicit DictBuilder(Budget& budget) : budget_(budget) {}
  void set(const Value& key, Value value);
  void add(const Value& key, Value value);  // leaves a key that is there as it is
  DictPtr finish();

 private:
  Budget& budget_;
  std::shared_ptr<Dict> dict_ = std::make_shared<Dict>();
};

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

Value make_list(std::vector<Value> items, ListKind kind = ListKind::kList);
Value undefined(std::string reason);
Value from_json(const nlohmann::ordered_json& json, Budget& budget);

int32_t depth_of(const Value& value);
std::string type_name(const Value& value);  // as Python names it
[[noreturn]] void fail_undefined(const Value& value);
bool is_number(const Value& value);
bool truthy(const Value& value);
bool equal(const Value& left, const Value& right, Budget& budget);
// Below, equal or above as -1, 0, 1. An error where Python cannot order the two.
int order(const Value& left, const Value& right, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

std::string to_text(const Value& value, Budget& budget);  // str(value)
std::string repr(const Value& value, Budget& budget);     // repr(value)

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;      // each element on its own line
  std::string indent = {};  // where pretty
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace lockstep::jinja
