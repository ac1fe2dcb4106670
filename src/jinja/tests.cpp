// The tests after "is".
#include <algorithm>

#include "jinja/library.h"
#include "jinja/text.h"

namespace lockstep::jinja {

namespace {

using Test = bool (*)(const Value& subject, const Arguments& arguments, Budget& budget);

struct NamedTest {
  std::string_view name;
  size_t arguments;
  Test test;
};

bool is_iterable(const Value& value) {
  return value.text() || value.list() || value.dict() || value.is<Undefined>();
}

bool is_same(const Value& left, const Value& right, Budget& budget) {
  if (left.data.index() != right.data.index()) return false;
  if (const bool* flag = left.as<bool>()) return *flag == *right.as<bool>();
  if (const int64_t* number = left.as<int64_t>()) return *number == *right.as<int64_t>();
  if (const double* number = left.as<double>()) return *number == *right.as<double>();
  if (left.is<None>() || left.is<Undefined>()) return true;
  if (left.text()) return equal(left, right, budget);
  if (left.list()) return left.list() == right.list();
  if (left.dict()) return left.dict() == right.dict();
  return false;
}

// Is the text all of one case? Python wants at least one letter with case.
bool is_cased(const Value& value, std::string (*change)(std::string_view),
              std::string (*other)(std::string_view), Budget& budget) {
  const std::string text = to_text(value, budget);
  budget.spend(text.size() * 2 * Budget::kPointCost);
  return change(text) == text && other(text) != text;
}

template <class T>
bool holds(const Value& value, const Arguments&, Budget&) {
  return value.is<T>();
}

bool divides(const Value& value, const Value& by, Budget& budget) {
  return !truthy(arithmetic("%", value, by, budget));
}

#define LS_TEST(body)                                                                    \
  [](const Value& subject [[maybe_unused]], const Arguments& arguments [[maybe_unused]], \
     Budget& budget [[maybe_unused]]) -> bool { body }
#define LS_COMPARE(symbol) \
  LS_TEST(return compare(symbol, subject, arguments.positional[0], budget);)

const NamedTest kTests[] = {
    {"defined", 0, LS_TEST(return !subject.is<Undefined>();)},
    {"undefined", 0, holds<Undefined>},
    {"none", 0, holds<None>},
    {"string", 0, holds<Text>},
    {"mapping", 0, holds<DictPtr>},
    {"boolean", 0, holds<bool>},
    {"integer", 0, holds<int64_t>},
    {"float", 0, holds<double>},
    {"number", 0, LS_TEST(return is_number(subject);)},
    {"iterable", 0, LS_TEST(return is_iterable(subject);)},
    {"sequence", 0, LS_TEST({
       const List* list = subject.list();
       return is_iterable(subject) &&
              !(list && (list->kind == ListKind::kGenerator || list->kind == ListKind::kView));
     })},
    {"callable", 0, LS_TEST(return subject.is<std::shared_ptr<const Callable>>();)},
    {"true", 0, LS_TEST(return subject.is<bool>() && *subject.as<bool>();)},
    {"false", 0, LS_TEST(return subject.is<bool>() && !*subject.as<bool>();)},
    {"odd", 0,
     LS_TEST(return equal(arithmetic("%", subject, Value(int64_t{2}), budget), Value(int64_t{1}),
                          budget);)},
    {"even", 0, LS_TEST(return divides(subject, Value(int64_t{2}), budget);)},
    {"divisibleby", 1, LS_TEST(return divides(subject, arguments.positional[0], budget);)},
    {"upper", 0, LS_TEST(return is_cased(subject, upper, lower, budget);)},
    {"lower", 0, LS_TEST(return is_cased(subject, lower, upper, budget);)},
    {"sameas", 1, LS_TEST(return is_same(subject, arguments.positional[0], budget);)},
    {"filter", 0, LS_TEST(return subject.text() && is_filter(*subject.text());)},
    {"test", 0, LS_TEST(return subject.text() && is_test(*subject.text());)},
    {"escaped", 0, LS_TEST(return false;)},
    {"in", 1, LS_COMPARE("in")},
    {"equalto", 1, LS_COMPARE("==")},
    {"eq", 1, LS_COMPARE("==")},
    {"==", 1, LS_COMPARE("==")},
    {"ne", 1, LS_COMPARE("!=")},
    {"!=", 1, LS_COMPARE("!=")},
    {"lt", 1, LS_COMPARE("<")},
    {"lessthan", 1, LS_COMPARE("<")},
    {"<", 1, LS_COMPARE("<")},
    {"le", 1, LS_COMPARE("<=")},
    {"<=", 1, LS_COMPARE("<=")},
    {"gt", 1, LS_COMPARE(">")},
    {"greaterthan", 1, LS_COMPARE(">")},
    {">", 1, LS_COMPARE(">")},
    {"ge", 1, LS_COMPARE(">=")},
    {">=", 1, LS_COMPARE(">=")},
};

const NamedTest* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const NamedTest& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool is_test(std::string_view name) {
  return find_test(name) != nullptr;
}

bool apply_test(const std::string& name, const Value& subject, const Arguments& arguments,
                Budget& budget) {
  budget.spend(Budget::kNodeCost);
  const NamedTest* test = find_test(name);
  if (!test) fail("the test '{}' is not supported", name);
  if (arguments.positional.size() != test->arguments || !arguments.named.empty()) {
    fail("the test '{}' takes {} argument(s), {} given", name, test->arguments,
         arguments.positional.size() + arguments.named.size());
  }
  return test->test(subject, arguments, budget);
}

}  // namespace lockstep::jinja
