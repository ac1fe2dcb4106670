// How the help is laid out.
#pragma once

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// Descriptions are wrapped to the terminal. What an option needs stands in its description.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_position) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace lockstep::cli
