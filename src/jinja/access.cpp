// Parts of values: elements, attributes, items and slices.
#include <algorithm>

#include "jinja/library.h"
#include "jinja/text.h"

namespace lockstep::jinja {

namespace {

Value method(const Value& receiver, std::string name) {
  return Value(std::make_shared<const Callable>(
      Callable{.kind = Callable::Kind::kMethod, .name = std::move(name), .receiver = receiver}));
}

std::string object_name(const Value& value) {
  return fmt::format("'{} object'", type_name(value));
}

Value loop_attribute(const Value& value, const LoopState& loop, const std::string& name) {
  const auto& items = loop.items.list()->items;
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return Value(loop.index + 1);
  if (name == "index0") return Value(loop.index);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "revindex") return Value(length - loop.index);
  if (name == "revindex0") return Value(length - loop.index - 1);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    if (loop.index == 0) return undefined("there is no previous item");
    return items[static_cast<size_t>(loop.index) - 1];
  }
  if (name == "nextitem") {
    if (loop.index + 1 >= length) return undefined("there is no next item");
    return items[static_cast<size_t>(loop.index) + 1];
  }
  if (name == "cycle") return method(value, name);
  if (name == "changed") fail("loop.changed is not supported");
  return undefined(fmt::format("'loop' has no attribute '{}'", name));
}

// Methods that change their object; Hugging Face's sandbox refuses them.
bool is_mutating(const Value& value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (value.list() && in(kList)) || (value.dict() && in(kDict));
}

// Python's rule for slices: bounds are clamped, and what they mean depends on the direction.
std::vector<size_t> slice_indices(int64_t length, const SliceBounds& bounds) {
  const int64_t step = bounds.step.value_or(1);
  if (step == 0) fail("a slice with a step of zero");
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? length - 1 : length;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    return std::clamp(*bound < 0 ? *bound + length : *bound, low, high);
  };
  const int64_t start = clamp(bounds.start, step < 0 ? high : low);
  const int64_t stop = clamp(bounds.stop, step < 0 ? low : high);
  std::vector<size_t> indices;
  for (int64_t i = start; step < 0 ? i > stop : i < stop;) {
    indices.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return indices;
}

}  // namespace

std::vector<Value> elements(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (const List* list = value.list()) {
    budget.spend(list->items.size() * Budget::kElementCost);
    if (list->kind == ListKind::kGenerator && std::exchange(list->consumed, true)) return items;
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    budget.spend(dict->items.size() * Budget::kElementCost);
    for (const auto& [key, item] : dict->items) items.push_back(key);
    return items;
  }
  if (const std::string* text = value.text()) {
    budget.spend(text->size() * Budget::kPartCost);
    for (const char32_t point : decode(*text)) {
      std::string one;
      append_point(one, point);
      items.emplace_back(std::move(one));
    }
    return items;
  }
  if (value.is<Undefined>()) return items;
  fail("a {} cannot be walked over", type_name(value));
}

int64_t length_of(const Value& value) {
  if (const std::string* text = value.text()) return count_points(*text);
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  if (value.is<Undefined>()) return 0;
  const List* list = value.list();
  if (!list || list->kind == ListKind::kGenerator) fail("a {} has no length", type_name(value));
  return static_cast<int64_t>(list->items.size());
}

int64_t integer_argument(const Value& value, std::string_view what) {
  if (const int64_t* number = value.as<int64_t>()) return *number;
  if (const bool* flag = value.as<bool>()) return int64_t{*flag};
  if (value.is<Undefined>()) fail_undefined(value);
  fail("{} must be an integer, not a {}", what, type_name(value));
}

const std::string& text_argument(const Value& value, std::string_view what) {
  if (const std::string* text = value.text()) return *text;
  if (value.is<Undefined>()) fail_undefined(value);
  fail("{} must be a string, not a {}", what, type_name(value));
}

Value get_attribute(const Value& value, const std::string& name) {
  if (value.is<Undefined>()) fail_undefined(value);
  if (const auto* space = value.as<std::shared_ptr<Namespace>>()) {
    const auto found = (*space)->attributes.find(name);
    if (found != (*space)->attributes.end()) return found->second;
    return undefined(fmt::format("the namespace has no attribute '{}'", name));
  }
  if (const auto* loop = value.as<std::shared_ptr<LoopState>>()) {
    return loop_attribute(value, **loop, name);
  }
  if (is_mutating(value, name)) {
    return undefined(
        fmt::format("'{}' would change a {}, which templates may not", name, type_name(value)));
  }
  if (has_method(value, name)) return method(value, name);
  if (const Dict* dict = value.dict()) {
    if (const Value* item = dict->find(std::string_view(name))) return *item;
  }
  return undefined(fmt::format("{} has no attribute '{}'", object_name(value), name));
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  if (value.is<Undefined>()) fail_undefined(value);
  if (const Dict* dict = value.dict()) {
    if (const Value* item = dict->find(key, budget)) return *item;
  }
  const bool indexed = key.is<int64_t>() || key.is<bool>();
  if (indexed && value.list() && value.list()->kind != ListKind::kGenerator &&
      value.list()->kind != ListKind::kView) {
    const auto& items = value.list()->items;
    int64_t index = integer_argument(key, "an index");
    if (index < 0) index += static_cast<int64_t>(items.size());
    if (index >= 0 && std::cmp_less(index, items.size())) return items[static_cast<size_t>(index)];
  }
  if (const std::string* text = value.text(); text && indexed) {
    budget.spend(text->size() * 4);
    const std::u32string points = decode(*text);
    int64_t index = integer_argument(key, "an index");
    if (index < 0) index += static_cast<int64_t>(points.size());
    if (index >= 0 && std::cmp_less(index, points.size())) {
      return Value(encode(std::u32string_view(points).substr(static_cast<size_t>(index), 1)));
    }
  }
  // As in Jinja, value['name'] may mean an attribute too.
  if (const std::string* name = key.text()) return get_attribute(value, *name);
  return undefined(fmt::format("{} has no element {}", object_name(value), repr(key, budget)));
}

Value get_path(const Value& value, const Value& path, Budget& budget) {
  if (!path.text()) return get_item(value, path, budget);
  Value part = value;
  budget.spend(path.text()->size() * 4 + Budget::kPartCost);
  for (const std::string& name : split(*path.text(), ".", -1, false)) {
    const bool digits =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    budget.spend(Budget::kPartCost);
    part = get_item(part, digits ? Value(int64_t{std::stoi(name)}) : Value(name), budget);
  }
  return part;
}

Value get_slice(const Value& value, const SliceBounds& bounds, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.spend(text->size() * 2 * Budget::kPointCost);
    const std::u32string points = decode(*text);
    std::string out;
    for (const size_t i : slice_indices(static_cast<int64_t>(points.size()), bounds)) {
      append_point(out, points[i]);
    }
    return Value(std::move(out));
  }
  const List* list = value.list();
  if (list && (list->kind == ListKind::kList || list->kind == ListKind::kTuple ||
               list->kind == ListKind::kRange)) {
    budget.spend(list->items.size() * Budget::kElementCost);
    std::vector<Value> items;
    for (const size_t i : slice_indices(static_cast<int64_t>(list->items.size()), bounds)) {
      items.push_back(list->items[i]);
    }
    return make_list(std::move(items), list->kind);
  }
  if (value.is<Undefined>()) fail_undefined(value);
  return undefined(fmt::format("{} cannot be sliced", object_name(value)));
}

}  // namespace lockstep::jinja
