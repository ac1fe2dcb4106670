#include "jinja/value.h"

#include <algorithm>
#include <cmath>

#include "jinja/callable.h"

namespace lockstep::jinja {

bool is_number(const Value& value) {
  return value.is<bool>() || value.is<int64_t>() || value.is<double>();
}

namespace {

int64_t integer_of(const Value& value) {
  return value.is<bool>() ? int64_t{*value.as<bool>()} : *value.as<int64_t>();
}

// Order of two numbers, exact between int64 and double; 2 where one is not a number (nan).
int order_numbers(const Value& left, const Value& right) {
  const bool left_real = left.is<double>();
  const bool right_real = right.is<double>();
  if (!left_real && !right_real) {
    const int64_t a = integer_of(left), b = integer_of(right);
    return a < b ? -1 : a > b;
  }
  if (left_real && right_real) {
    const double a = *left.as<double>(), b = *right.as<double>();
    if (std::isnan(a) || std::isnan(b)) return 2;
    return a < b ? -1 : a > b;
  }
  if (right_real) {
    const int flipped = order_numbers(right, left);
    return flipped == 2 ? 2 : -flipped;
  }
  const double real = *left.as<double>();
  const int64_t whole = integer_of(right);
  if (std::isnan(real)) return 2;
  if (real >= 9223372036854775808.0) return 1;
  if (real < -9223372036854775808.0) return -1;
  const auto truncated = static_cast<int64_t>(real);
  if (truncated != whole) return truncated < whole ? -1 : 1;
  const double fraction = real - static_cast<double>(truncated);
  return fraction < 0 ? -1 : fraction > 0;
}

bool sequences_equal(const List& left, const List& right, Budget& budget) {
  if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equal(left.items[i], right.items[i], budget)) return false;
  }
  return true;
}

bool dicts_equal(const Dict& left, const Dict& right, Budget& budget) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    const Value* other = right.find(key, budget);
    if (!other || !equal(value, *other, budget)) return false;
  }
  return true;
}

void check_depth(int32_t depth) {
  if (depth > kMaxValueDepth) fail("values are nested deeper than {}", kMaxValueDepth);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (const std::string* text = key.text()) {
    budget.spend(2 * text->size());
    return find(std::string_view(*text));
  }
  for (const size_t index : others_) {
    if (equal(items[index].first, key, budget)) return &items[index].second;
  }
  return nullptr;
}

void DictBuilder::set(const Value& key, Value value) {
  const bool hashable = key.is<Text>() || key.is<None>() || is_number(key) ||
                        (key.list() && key.list()->kind == ListKind::kTuple);
  if (!hashable) fail("a {} cannot be the key of a dict here", type_name(key));
  dict_->depth = std::max({dict_->depth, depth_of(key) + 1, depth_of(value) + 1});
  check_depth(dict_->depth);
  if (const Value* old = dict_->find(key, budget_)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  if (const std::string* text = key.text()) {
    dict_->texts_.emplace(*text, dict_->items.size());
  } else {
    dict_->others_.push_back(dict_->items.size());
    if (dict_->others_.size() > 1000) fail("a dict with over 1000 keys that are not strings");
  }
  dict_->items.emplace_back(key, std::move(value));
}

void DictBuilder::add(const Value& key, Value value) {
  if (!dict_->find(key, budget_)) set(key, std::move(value));
}

DictPtr DictBuilder::finish() {
  return std::move(dict_);
}

Value make_list(std::vector<Value> items, ListKind kind) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->depth = std::max(list->depth, depth_of(item) + 1);
  check_depth(list->depth);
  list->items = std::move(items);
  list->kind = kind;
  return Value(ListPtr(std::move(list)));
}

Value undefined(std::string reason) {
  Value value;
  value.data = Undefined{std::make_shared<const std::string>(std::move(reason))};
  return value;
}

namespace {

Value from_json_at(const nlohmann::ordered_json& json, int32_t depth, Budget& budget) {
  check_depth(depth);
  budget.spend(Budget::kElementCost);
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        fail("the integer {} is beyond 64 bits with sign", json.get<uint64_t>());
      }
      return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.spend(text.size());
      return Value(text);
    }
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json_at(item, depth + 1, budget));
      return make_list(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      DictBuilder builder(budget);
      for (const auto& [key, item] : json.items()) {
        budget.spend(key.size());
        builder.set(Value(key), from_json_at(item, depth + 1, budget));
      }
      return Value(builder.finish());
    }
    default:
      return Value(None{});
  }
}

}  // namespace

Value from_json(const nlohmann::ordered_json& json, Budget& budget) {
  return from_json_at(json, 1, budget);
}

int32_t depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const auto* callable = value.as<std::shared_ptr<const Callable>>()) {
    return depth_of((*callable)->receiver) + 1;
  }
  if (const auto* loop = value.as<std::shared_ptr<LoopState>>()) {
    return depth_of((*loop)->items) + 1;
  }
  return 0;  // a namespace: the interpreter keeps and empties them one by one
}

std::string type_name(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",       "int",
                                           "float",     "str",      "list",       "dict",
                                           "Namespace", "function", "LoopContext"};
  if (const List* list = value.list()) {
    static constexpr const char* kLists[] = {"list", "tuple", "generator", "dict view", "range"};
    return kLists[static_cast<size_t>(list->kind)];
  }
  return kNames[value.data.index()];
}

void fail_undefined(const Value& value) {
  const auto& reason = value.as<Undefined>()->reason;
  throw TemplateError{reason ? *reason : "the value is undefined"};
}

bool truthy(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const int64_t* number = value.as<int64_t>()) return *number != 0;
  if (const double* number = value.as<double>()) return *number != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const List* list = value.list()) {
    return list->kind == ListKind::kGenerator || !list->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.spend(24);
  if (is_number(left) && is_number(right)) return order_numbers(left, right) == 0;
  if (left.data.index() != right.data.index()) return false;
  if (left.is<Undefined>() || left.is<None>()) return true;
  if (const std::string* text = left.text()) {
    budget.spend(std::min(text->size(), right.text()->size()));
    return *text == *right.text();
  }
  if (const List* list = left.list()) {
    return list == right.list() || sequences_equal(*list, *right.list(), budget);
  }
  if (const Dict* dict = left.dict()) {
    return dict == right.dict() || dicts_equal(*dict, *right.dict(), budget);
  }
  if (const auto* space = left.as<std::shared_ptr<Namespace>>()) {
    return *space == *right.as<std::shared_ptr<Namespace>>();
  }
  return false;
}

int order(const Value& left, const Value& right, Budget& budget) {
  budget.spend(32);
  if (is_number(left) && is_number(right)) return order_numbers(left, right);
  if (left.text() && right.text()) {
    // Byte order of UTF-8 is code point order.
    budget.spend(std::min(left.text()->size(), right.text()->size()));
    const int sign = left.text()->compare(*right.text());
    return sign < 0 ? -1 : sign > 0;
  }
  const List* a = left.list();
  const List* b = right.list();
  if (a && b && a->kind == b->kind && (a->kind == ListKind::kList || a->kind == ListKind::kTuple)) {
    for (size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
      if (!equal(a->items[i], b->items[i], budget)) return order(a->items[i], b->items[i], budget);
    }
    return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size();
  }
  if (left.is<Undefined>()) fail_undefined(left);
  if (right.is<Undefined>()) fail_undefined(right);
  fail("cannot order a {} and a {}", type_name(left), type_name(right));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.text()) {
    if (!item.text()) fail("'in <string>' needs a string on the left, not a {}", type_name(item));
    budget.spend_search(text->size(), item.text()->size());
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item, budget) != nullptr;
  if (container.is<Undefined>()) return false;
  const List* list = container.list();
  if (!list) fail("a {} holds nothing that 'in' could find", type_name(container));
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& other) { return equal(other, item, budget); });
}

}  // namespace lockstep::jinja
