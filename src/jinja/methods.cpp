// Methods of str, dict, list and loop.
#include <algorithm>

#include "jinja/library.h"
#include "jinja/text.h"

namespace lockstep::jinja {

namespace {

using TextMethod = Value (*)(const std::string& text, const Arguments& arguments, Budget& budget);

Value texts(std::vector<std::string> parts, Budget& budget, ListKind kind = ListKind::kList) {
  std::vector<Value> items;
  for (std::string& part : parts) {
    budget.spend(part.size() + Budget::kElementCost);
    items.emplace_back(std::move(part));
  }
  return make_list(std::move(items), kind);
}

// Where a text may be cut at white space: at bytes that are no ASCII letter or sign.
bool is_odd(char c) {
  return c <= ' ' || c > '~';
}

template <Side kSide>
Value strip_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "strip()", {"chars"}, 0);
  const Value* characters = arguments.find(0, "chars");
  if (!characters || characters->is<None>()) {
    budget.spend(text.size() * 4);
    return Value(std::string(strip(text, kSide)));
  }
  const std::string& set = text_argument(*characters, "chars");
  budget.spend(text.size() * (Budget::kPointCost + set.size()));
  return Value(std::string(strip(text, set, kSide)));
}

template <std::string (*change)(std::string_view)>
Value change_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the method", {}, 0);
  budget.spend(text.size() * Budget::kPointCost);
  return Value(change(text));
}

template <bool kFromRight>
Value split_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "split()", {"sep", "maxsplit"}, 0);
  const Value* separator = arguments.find(0, "sep");
  const Value* most = arguments.find(1, "maxsplit");
  const int64_t limit = most ? integer_argument(*most, "maxsplit") : -1;
  if (!separator || separator->is<None>()) {
    if (kFromRight && limit >= 0) fail("rsplit() at white space with a limit is not supported");
    const auto parts = static_cast<uint64_t>(std::ranges::count_if(text, is_odd) + 1);
    budget.spend(parts * Budget::kPartCost + text.size() * Budget::kPointCost);
    return texts(split_space(text, limit), budget);
  }
  const std::string& cut = text_argument(*separator, "sep");
  if (cut.empty()) fail("split() with an empty separator");
  budget.spend(text.size() / cut.size() * Budget::kElementCost);
  budget.spend_search(text.size(), cut.size());
  return texts(split(text, cut, limit, kFromRight), budget);
}

template <bool kFromRight>
Value partition(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "partition()", {"sep"}, 1);
  const std::string& cut = text_argument(*arguments.find(0, "sep"), "sep");
  if (cut.empty()) fail("partition() with an empty separator");
  budget.spend_search(text.size(), cut.size());
  const size_t at = kFromRight ? text.rfind(cut) : text.find(cut);
  if (at == std::string::npos) {
    return kFromRight ? texts({"", "", text}, budget, ListKind::kTuple)
                      : texts({text, "", ""}, budget, ListKind::kTuple);
  }
  return texts({text.substr(0, at), cut, text.substr(at + cut.size())}, budget, ListKind::kTuple);
}

// startswith and endswith take one string or a tuple of them.
template <bool kEnd>
Value has_edge(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, kEnd ? "endswith()" : "startswith()", {"prefix"}, 1);
  const Value& edge = *arguments.find(0, "prefix");
  const auto matches = [&](const Value& one) {
    const std::string& part = text_argument(one, "what startswith() and endswith() get");
    budget.spend(part.size() + Budget::kElementCost);
    return kEnd ? text.ends_with(part) : text.starts_with(part);
  };
  const List* several = edge.list();
  if (!several || several->kind != ListKind::kTuple) return Value(matches(edge));
  return Value(std::any_of(several->items.begin(), several->items.end(), matches));
}

template <bool kSuffix>
Value remove_edge(const std::string& text, const Arguments& arguments, Budget&) {
  check_arguments(arguments, "removeprefix()", {"prefix"}, 1);
  const std::string& edge = text_argument(*arguments.find(0, "prefix"), "what is removed");
  if (kSuffix)
    return Value(text.ends_with(edge) ? text.substr(0, text.size() - edge.size()) : text);
  return Value(text.starts_with(edge) ? text.substr(edge.size()) : text);
}

Value replace_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "replace()", {"old", "new", "count"}, 2);
  const std::string& from = text_argument(*arguments.find(0, "old"), "old");
  const std::string& to = text_argument(*arguments.find(1, "new"), "new");
  const Value* count = arguments.find(2, "count");
  // The largest result there can be is paid for before it is made.
  budget.spend(text.size());
  budget.spend_search(text.size(), from.size());
  const uint64_t places = text.size() / std::max<size_t>(from.size(), 1) + 1;
  if (text.find(from) != std::string::npos) budget.spend(places * to.size());
  return Value(replace(text, from, to, count ? integer_argument(*count, "count") : -1));
}

Value join_texts(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "join()", {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : elements(*arguments.find(0, "iterable"), budget)) {
    const std::string& part = text_argument(item, "what join() puts together");
    budget.spend(part.size() + text.size());
    if (!std::exchange(first, false)) out += text;
    out += part;
  }
  return Value(std::move(out));
}

enum class Found { kFind, kRfind, kIndex, kCount };
template <Found kWhat>
Value find_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "find()", {"sub"}, 1);
  const std::string& part = text_argument(*arguments.find(0, "sub"), "sub");
  budget.spend(text.size());
  budget.spend_search(text.size(), part.size());
  if (kWhat == Found::kCount) {
    budget.spend(text.size() / std::max<size_t>(part.size(), 1) * Budget::kElementCost);
    if (part.empty()) return Value(count_points(text) + 1);
    return Value(static_cast<int64_t>(split(text, part, -1, false).size()) - 1);
  }
  const size_t at = kWhat == Found::kRfind ? text.rfind(part) : text.find(part);
  if (at == std::string::npos && kWhat == Found::kIndex) fail("index(): substring not found");
  if (at == std::string::npos) return Value(int64_t{-1});
  return Value(count_points(std::string_view(text).substr(0, at)));
}

template <bool (*test)(char32_t)>
Value all_are(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the method", {}, 0);
  budget.spend(text.size() * Budget::kPointCost);
  const std::u32string points = decode(text);
  return Value(!points.empty() && std::all_of(points.begin(), points.end(), test));
}

bool is_alnum(char32_t point) {
  return is_alpha(point) || is_digit(point);
}

template <bool kUpper>
Value is_cased(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the method", {}, 0);
  return Value(apply_test(kUpper ? "upper" : "lower", Value(text), {}, budget));
}

Value split_lines_of(const std::string& text, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "splitlines()", {"keepends"}, 0);
  const Value* keep = arguments.find(0, "keepends");
  budget.spend(static_cast<uint64_t>(std::ranges::count_if(text, is_odd) + 1) * Budget::kPartCost +
               text.size() * 4);
  return texts(split_lines(text, keep && truthy(*keep)), budget);
}

Value format_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  return Value(format_braces(text, arguments, budget));
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> kMethods = {
      {"strip", strip_text<Side::kBoth>},
      {"lstrip", strip_text<Side::kLeft>},
      {"rstrip", strip_text<Side::kRight>},
      {"upper", change_text<upper>},
      {"lower", change_text<lower>},
      {"title", change_text<title>},
      {"capitalize", change_text<capitalize>},
      {"split", split_text<false>},
      {"rsplit", split_text<true>},
      {"splitlines", split_lines_of},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"startswith", has_edge<false>},
      {"endswith", has_edge<true>},
      {"removeprefix", remove_edge<false>},
      {"removesuffix", remove_edge<true>},
      {"replace", replace_text},
      {"join", join_texts},
      {"find", find_text<Found::kFind>},
      {"rfind", find_text<Found::kRfind>},
      {"index", find_text<Found::kIndex>},
      {"count", find_text<Found::kCount>},
      {"isspace", all_are<is_space>},
      {"isdigit", all_are<is_digit>},
      {"isalpha", all_are<is_alpha>},
      {"isalnum", all_are<is_alnum>},
      {"isupper", is_cased<true>},
      {"islower", is_cased<false>},
      {"format", format_text},
  };
  return kMethods;
}

Value dict_view(const Dict& dict, const std::string& name, Budget& budget) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    budget.spend(3 * Budget::kElementCost);
    items.push_back(name == "keys"     ? key
                    : name == "values" ? value
                                       : make_list({key, value}, ListKind::kTuple));
  }
  return make_list(std::move(items), ListKind::kView);
}

Value dict_method(const Value& receiver, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  const Dict& dict = *receiver.dict();
  if (name == "get") {
    check_arguments(arguments, "get()", {"key", "default"}, 1);
    if (const Value* found = dict.find(*arguments.find(0, "key"), budget)) return *found;
    const Value* fallback = arguments.find(1, "default");
    return fallback ? *fallback : Value(None{});
  }
  check_arguments(arguments, "the method", {}, 0);
  return name == "copy" ? receiver : dict_view(dict, name, budget);
}

Value list_method(const Value& receiver, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  const auto& items = receiver.list()->items;
  if (name == "copy") return receiver;
  check_arguments(arguments, "the method", {"value"}, 1);
  const Value& wanted = *arguments.find(0, "value");
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(items[i], wanted, budget)) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") fail("index(): the value is not in the list");
  return Value(count);
}

Value loop_cycle(const LoopState& loop, const Arguments& arguments) {
  if (!arguments.named.empty()) fail("loop.cycle() takes no named arguments");
  if (arguments.positional.empty()) fail("loop.cycle() needs a value");
  return arguments.positional[static_cast<size_t>(loop.index) % arguments.positional.size()];
}

}  // namespace

bool has_method(const Value& receiver, std::string_view name) {
  if (receiver.text()) return text_methods().contains(name);
  if (receiver.dict()) {
    return name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy";
  }
  const List* list = receiver.list();
  const bool sequence = list && (list->kind == ListKind::kList || list->kind == ListKind::kTuple);
  return sequence &&
         (name == "index" || name == "count" || (name == "copy" && list->kind == ListKind::kList));
}

Value call_method(const Value& receiver, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  if (const std::string* text = receiver.text()) {
    budget.spend(text->size());
    return text_methods().at(name)(*text, arguments, budget);
  }
  if (receiver.dict()) return dict_method(receiver, name, arguments, budget);
  if (receiver.list()) return list_method(receiver, name, arguments, budget);
  return loop_cycle(**receiver.as<std::shared_ptr<LoopState>>(), arguments);
}

}  // namespace lockstep::jinja
