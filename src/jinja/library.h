// What templates find ready-made: operators, attributes, methods, filters and tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/callable.h"
#include "jinja/value.h"

namespace lockstep::jinja {

// operators.cpp
Value negative(const Value& value);
Value positive(const Value& value);
Value arithmetic(std::string_view symbol, const Value& left, const Value& right, Budget& budget);
bool compare(std::string_view symbol, const Value& left, const Value& right, Budget& budget);

// access.cpp
std::vector<Value> elements(const Value& value, Budget& budget);  // what a loop walks over
int64_t length_of(const Value& value);
int64_t integer_argument(const Value& value, std::string_view what);
const std::string& text_argument(const Value& value, std::string_view what);
Value get_attribute(const Value& value, const std::string& name);       // value.name
Value get_item(const Value& value, const Value& key, Budget& budget);   // value[key]
Value get_path(const Value& value, const Value& path, Budget& budget);  // "a.b.0" of filters
struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value get_slice(const Value& value, const SliceBounds& bounds, Budget& budget);

// methods.cpp, format.cpp
bool has_method(const Value& receiver, std::string_view name);
Value call_method(const Value& receiver, const std::string& name, const Arguments& arguments,
                  Budget& budget);
std::string format_braces(const std::string& format, const Arguments& arguments, Budget& budget);
std::string format_percent(const std::string& format, const Value& values, Budget& budget);

// filters.cpp, sequence_filters.cpp
using Filter = Value (*)(const Value& subject, const Arguments& arguments, Budget& budget);
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
bool is_filter(std::string_view name);
Value apply_filter(const std::string& name, const Value& subject, const Arguments& arguments,
                   Budget& budget);

// tests.cpp
bool is_test(std::string_view name);
bool apply_test(const std::string& name, const Value& subject, const Arguments& arguments,
                Budget& budget);

}  // namespace lockstep::jinja
