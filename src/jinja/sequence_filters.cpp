// Filters on sequences and dicts.
#include <algorithm>

#include "jinja/library.h"
#include "jinja/text.h"

namespace lockstep::jinja {

namespace {

// The key to sort or compare by: an attribute where one is asked for, without case by default.
Value sort_key(const Value& item, const Value* attribute, bool with_case, Budget& budget) {
  Value key = attribute && !attribute->is<None>() ? get_path(item, *attribute, budget) : item;
  if (!with_case && key.text()) {
    budget.spend(key.text()->size() * Budget::kPointCost + Budget::kPartCost);
    return Value(lower(*key.text()));
  }
  return key;
}

bool flag(const Arguments& arguments, size_t index, std::string_view name) {
  const Value* value = arguments.find(index, name);
  return value && truthy(*value);
}

Value join(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'join'", {"d", "attribute"}, 0);
  const Value* separator = arguments.find(0, "d");
  const Value* attribute = arguments.find(1, "attribute");
  const std::string between = separator ? to_text(*separator, budget) : "";
  std::string out;
  bool first = true;
  for (const Value& item : elements(subject, budget)) {
    budget.spend(between.size());
    if (!std::exchange(first, false)) out += between;
    const bool whole = !attribute || attribute->is<None>();
    out += to_text(whole ? item : get_path(item, *attribute, budget), budget);
  }
  return Value(std::move(out));
}

Value first(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'first'", {}, 0);
  const std::vector<Value> items = elements(subject, budget);
  return items.empty() ? undefined("no first item: the sequence is empty") : items.front();
}

Value last(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'last'", {}, 0);
  if (subject.list() && subject.list()->kind == ListKind::kGenerator) {
    fail("a generator has no last item; pass it through the filter 'list'");
  }
  const std::vector<Value> items = elements(subject, budget);
  return items.empty() ? undefined("no last item: the sequence is empty") : items.back();
}

Value to_list(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'list'", {}, 0);
  return make_list(elements(subject, budget));
}

std::vector<Value> pairs_of(const Dict& dict, Budget& budget) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.items) {
    budget.spend(3 * Budget::kElementCost);
    pairs.push_back(make_list({key, value}, ListKind::kTuple));
  }
  return pairs;
}

Value items(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'items'", {}, 0);
  if (subject.is<Undefined>()) return make_list({}, ListKind::kGenerator);
  if (!subject.dict()) fail("the filter 'items' needs a dict, not a {}", type_name(subject));
  return make_list(pairs_of(*subject.dict(), budget), ListKind::kGenerator);
}

void sort_by_keys(std::vector<Value>& values, const std::vector<Value>& keys, bool reverse,
                  Budget& budget) {
  std::vector<size_t> indices(values.size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  std::stable_sort(indices.begin(), indices.end(), [&](size_t a, size_t b) {
    const int sign = order(keys[a], keys[b], budget);
    return reverse ? sign == 1 : sign == -1;
  });
  std::vector<Value> sorted;
  for (const size_t index : indices) sorted.push_back(values[index]);
  values = std::move(sorted);
}

Value sort(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'sort'", {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Value> values = elements(subject, budget);
  const Value* attribute = arguments.find(2, "attribute");
  const bool with_case = flag(arguments, 1, "case_sensitive");
  std::vector<Value> keys;
  for (const Value& value : values) {
    if (attribute && attribute->text()) {  // may name several: "age,name"
      std::vector<Value> parts;
      budget.spend(static_cast<uint64_t>(std::ranges::count(*attribute->text(), ',') + 1) * 2 *
                       Budget::kPartCost +
                   attribute->text()->size() * 4);
      for (const std::string& path : split(*attribute->text(), ",", -1, false)) {
        const Value part_path(path);
        parts.push_back(sort_key(value, &part_path, with_case, budget));
      }
      keys.push_back(make_list(std::move(parts)));
    } else {
      keys.push_back(sort_key(value, attribute, with_case, budget));
    }
  }
  sort_by_keys(values, keys, flag(arguments, 0, "reverse"), budget);
  return make_list(std::move(values));
}

Value dictsort(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'dictsort'", {"case_sensitive", "by", "reverse"}, 0);
  if (subject.is<Undefined>()) fail_undefined(subject);
  if (!subject.dict()) fail("the filter 'dictsort' needs a dict, not a {}", type_name(subject));
  const Value* by = arguments.find(1, "by");
  const std::string which = by ? text_argument(*by, "by") : "key";
  if (which != "key" && which != "value") fail("'dictsort' sorts by key or value, not '{}'", which);
  std::vector<Value> pairs = pairs_of(*subject.dict(), budget);
  std::vector<Value> keys;
  for (const Value& pair : pairs) {
    keys.push_back(sort_key(pair.list()->items[which == "key" ? 0 : 1], nullptr,
                            flag(arguments, 0, "case_sensitive"), budget));
  }
  sort_by_keys(pairs, keys, flag(arguments, 2, "reverse"), budget);
  return make_list(std::move(pairs));
}

Value unique(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'unique'", {"case_sensitive", "attribute"}, 0);
  DictBuilder seen(budget);
  for (const Value& item : elements(subject, budget)) {
    const Value key = sort_key(item, arguments.find(1, "attribute"),
                               flag(arguments, 0, "case_sensitive"), budget);
    budget.spend(2 * Budget::kPartCost);
    seen.add(key, item);
  }
  std::vector<Value> kept;
  const auto dict = seen.finish();
  for (const auto& [key, item] : dict->items) kept.push_back(item);
  return make_list(std::move(kept), ListKind::kGenerator);
}

Value reverse(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'reverse'", {}, 0);
  if (subject.text()) return get_slice(subject, {.start = {}, .stop = {}, .step = -1}, budget);
  std::vector<Value> values = elements(subject, budget);
  std::reverse(values.begin(), values.end());
  return make_list(std::move(values), ListKind::kGenerator);
}

bool nests(std::string_view name) {
  return name == "map" || name == "select" || name == "reject" || name == "selectattr" ||
         name == "rejectattr";
}

Value map(const Value& subject, const Arguments& arguments, Budget& budget) {
  std::vector<Value> mapped;
  if (!truthy(subject)) return make_list(std::move(mapped), ListKind::kGenerator);
  if (arguments.positional.empty()) {
    check_arguments(arguments, "the filter 'map'", {"attribute", "default"}, 1);
    const Value* fallback = arguments.find(1, "default");
    for (const Value& item : elements(subject, budget)) {
      Value part = get_path(item, *arguments.find(0, "attribute"), budget);
      if (part.is<Undefined>() && fallback && !fallback->is<None>()) part = *fallback;
      mapped.push_back(std::move(part));
    }
    return make_list(std::move(mapped), ListKind::kGenerator);
  }
  const std::string& name = text_argument(arguments.positional[0], "the filter to map");
  // One filter of this kind inside another would recurse as deep as the arguments are many.
  if (nests(name)) fail("the filter '{}' inside of 'map' is not supported", name);
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : elements(subject, budget)) {
    mapped.push_back(apply_filter(name, item, rest, budget));
  }
  return make_list(std::move(mapped), ListKind::kGenerator);
}

// select, reject (by the item itself), selectattr, rejectattr (by one of its attributes).
template <bool kKeep, bool kAttribute>
Value select(const Value& subject, const Arguments& arguments, Budget& budget) {
  Arguments rest = arguments;
  Value attribute;
  if (kAttribute) {
    if (rest.positional.empty()) fail("the filter needs the name of an attribute");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = text_argument(rest.positional[0], "the name of a test");
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> kept;
  if (!truthy(subject)) return make_list(std::move(kept), ListKind::kGenerator);
  for (const Value& item : elements(subject, budget)) {
    const Value looked_at = kAttribute ? get_path(item, attribute, budget) : item;
    const bool passes =
        test.empty() ? truthy(looked_at) : apply_test(test, looked_at, rest, budget);
    if (passes == kKeep) kept.push_back(item);
  }
  return make_list(std::move(kept), ListKind::kGenerator);
}

template <int kSign>
Value extreme(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter", {"case_sensitive", "attribute"}, 0);
  const std::vector<Value> values = elements(subject, budget);
  if (values.empty()) return undefined("no item: the sequence is empty");
  const Value* attribute = arguments.find(1, "attribute");
  const bool with_case = flag(arguments, 0, "case_sensitive");
  size_t best = 0;
  Value best_key = sort_key(values[0], attribute, with_case, budget);
  for (size_t i = 1; i < values.size(); ++i) {
    Value key = sort_key(values[i], attribute, with_case, budget);
    if (order(key, best_key, budget) == kSign) {
      best = i;
      best_key = std::move(key);
    }
  }
  return values[best];
}

Value sum(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'sum'", {"attribute", "start"}, 0);
  const Value* attribute = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  Value total = start ? *start : Value(int64_t{0});
  for (const Value& item : elements(subject, budget)) {
    const bool whole = !attribute || attribute->is<None>();
    total = arithmetic("+", total, whole ? item : get_path(item, *attribute, budget), budget);
  }
  return total;
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> kFilters = {
      {"join", join},
      {"first", first},
      {"last", last},
      {"list", to_list},
      {"items", items},
      {"sort", sort},
      {"dictsort", dictsort},
      {"unique", unique},
      {"reverse", reverse},
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
      {"min", extreme<-1>},
      {"max", extreme<1>},
      {"sum", sum},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace lockstep::jinja
