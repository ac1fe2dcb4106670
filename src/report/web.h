// Pages that CMake made of the files in web/, with their data.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace lockstep::report {

// JSON for a <script> element: no text within the data can end the element, or begin a comment.
std::string data_block(const nlohmann::ordered_json& data);

// The page with a text for each mark. The marks stand in the page in this order.
std::string filled_page(std::string_view page,
                        std::initializer_list<std::pair<std::string_view, std::string>> parts);

}  // namespace lockstep::report
