// Test-only: runs a model on token ids and writes the named values that it passes through as .npy
// files, so that scripts can compare them with what other engines compute.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "cli/device.h"
#include "exec/executor.h"
#include "exec/registry.h"
#include "model/model.h"

namespace lockstep {
namespace {

struct Request {
  std::string model;
  std::vector<exec::TokenId> tokens;
  std::string out_dir;  // empty: nothing is written
  std::vector<std::string> globs = {"*"};
  cli::DeviceFlags device = {.name = "reference"};
  int64_t chunk = 0;    // tokens a step; 0: all at once
  int64_t greedy = 0;   // tokens to choose and to print
  int64_t context = 0;  // 0: as many positions as are evaluated
};

// One value over all steps: each step's rows after those of the steps before it.
struct Collected {
  struct Part {
    std::vector<int64_t> shape;  // [rows, width], or [heads, rows, positions]
    std::vector<double> numbers;
  };
  std::vector<Part> parts;
};

class Collector : public op::Observer {
 public:
  Collector(const op::Program& program, const Request& request)
      : program_(program), wanted_(program.values.size()) {
    if (request.out_dir.empty()) return;
    for (size_t i = 0; i < wanted_.size(); ++i)
      for (const std::string& glob : request.globs)
        if (fnmatch(glob.c_str(), program.values[i].name.c_str(), 0) == 0) wanted_[i] = true;
  }

  bool wants(op::ValueId id) const override { return wanted_[static_cast<size_t>(id)]; }

  void see(op::ValueId id, const View& view) override {
    Collected::Part part{view.shape, std::vector<double>(static_cast<size_t>(view.size()))};
    for (int64_t i = 0; i < view.size(); ++i) part.numbers[static_cast<size_t>(i)] = view.at(i);
    values_[id].parts.push_back(std::move(part));
  }

  Result<void> write(const std::string& folder) const {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) return error("{}: {}", folder, problem.message());
    for (const auto& [id, collected] : values_) {
      const op::Value& value = program_.value(id);
      LS_TRY_VOID(write_npy(fmt::format("{}/{}.npy", folder, value.name),
                            value.shape == op::Value::Shape::kRows
                                ? join_rows(collected)
                                : join_scores(collected, value)));
    }
    return {};
  }

 private:
  static Collected::Part join_rows(const Collected& collected) {
    Collected::Part all{{0, collected.parts.front().shape[1]}, {}};
    for (const Collected::Part& part : collected.parts) {
      all.shape[0] += part.shape[0];
      all.numbers.insert(all.numbers.end(), part.numbers.begin(), part.numbers.end());
    }
    return all;
  }

  // Earlier steps saw fewer positions; to them the later ones are as masked as the future is.
  static Collected::Part join_scores(const Collected& collected, const op::Value& value) {
    const bool scores = value.name.ends_with("attn_scores");
    const int64_t heads = value.width;
    const int64_t positions = collected.parts.back().shape[2];
    int64_t rows = 0;
    for (const Collected::Part& part : collected.parts) rows += part.shape[1];
    Collected::Part all{{heads, rows, positions}, {}};
    all.numbers.assign(static_cast<size_t>(heads * rows * positions),
                       scores ? -std::numeric_limits<double>::infinity() : 0.0);
    int64_t first_row = 0;
    for (const Collected::Part& part : collected.parts) {
      const int64_t own_rows = part.shape[1];
      const int64_t own_positions = part.shape[2];
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t row = 0; row < own_rows; ++row)
          std::copy_n(part.numbers.begin() + (head * own_rows + row) * own_positions, own_positions,
                      all.numbers.begin() + (head * rows + first_row + row) * positions);
      first_row += own_rows;
    }
    return all;
  }

  // numpy's format, version 1.0: magic, length of the header, the header as a Python dictionary
  // padded so that the data starts at a multiple of 64, the data.
  static Result<void> write_npy(const std::string& path, const Collected::Part& part) {
    std::string header = fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},)}}",
                                     fmt::join(part.shape, ", "));
    constexpr size_t kPrefixBytes = 10;
    header.append(63 - (kPrefixBytes + header.size()) % 64, ' ');
    header += '\n';
    std::ofstream out(path, std::ios::binary);
    out.write("\x93NUMPY\x01\x00", 8);
    out.put(static_cast<char>(header.size() & 0xff));
    out.put(static_cast<char>(header.size() >> 8));
    out << header;
    out.write(reinterpret_cast<const char*>(part.numbers.data()),
              static_cast<std::streamsize>(part.numbers.size() * sizeof(double)));
    out.close();
    if (!out) return error("{}: cannot be written", path);
    return {};
  }

  const op::Program& program_;
  std::vector<bool> wanted_;  // by value
  std::map<op::ValueId, Collected> values_;
};

// Of the last row; ties go to the lowest id.
exec::TokenId argmax(const View& logits) {
  const int64_t width = logits.shape[1];
  const int64_t first = (logits.shape[0] - 1) * width;
  int64_t best = 0;
  for (int64_t i = 1; i < width; ++i)
    if (logits.at(first + i) > logits.at(first + best)) best = i;
  return static_cast<exec::TokenId>(best);
}

Result<void> dump(const Request& request) {
  LS_TRY(const model::Model model, model::Model::load(request.model));
  const auto given = static_cast<int64_t>(request.tokens.size());
  // The last token chosen is not evaluated.
  const int64_t evaluated = given + std::max<int64_t>(0, request.greedy - 1);
  LS_TRY(const op::Program program,
         model.program(request.context > 0 ? request.context : evaluated));
  LS_TRY(const exec::Device* device, exec::find_device(request.device.name));
  LS_TRY(const auto executor, device->create(program, cli::options_of(request.device)));

  Collector collector(program, request);
  const int64_t chunk = request.chunk > 0 ? request.chunk : given;
  exec::TokenId next = 0;
  for (int64_t first = 0; first < given; first += chunk) {
    const auto tokens = std::span(request.tokens)
                            .subspan(static_cast<size_t>(first),
                                     static_cast<size_t>(std::min(chunk, given - first)));
    LS_TRY(const View logits,
           executor->run({.tokens = tokens, .all_logits = true, .observer = &collector}));
    next = argmax(logits);
  }
  for (int64_t i = 0; i < request.greedy; ++i) {
    fmt::print("{}{}", i > 0 ? " " : "", next);
    if (i + 1 == request.greedy) break;
    LS_TRY(
        const View logits,
        executor->run({.tokens = std::span(&next, 1), .all_logits = true, .observer = &collector}));
    next = argmax(logits);
  }
  if (request.greedy > 0) fmt::print("\n");
  if (!request.out_dir.empty()) LS_TRY_VOID(collector.write(request.out_dir));
  return {};
}

int main(int argc, char** argv) {
  Request request;
  CLI::App app("Runs a model on token ids and writes the values that it passes through.");
  app.add_option("MODEL", request.model, "GGUF file")->required();
  app.add_option("TOKENS", request.tokens, "ids separated by commas")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("OUT_DIR", request.out_dir, "folder for NAME.npy (f64), one a value");
  app.add_option("NAME_GLOB", request.globs, "values to write (default: all)");
  cli::declare_device(app, request.device);
  app.get_option("--device")->capture_default_str();
  app.add_option("--chunk", request.chunk, "tokens a step (default: all at once)")
      ->check(CLI::PositiveNumber);
  app.add_option("--ctx", request.context, "context length (default: the positions evaluated)")
      ->check(CLI::PositiveNumber);
  app.add_option("--greedy", request.greedy,
                 "choose and print this many tokens; their values are "
                 "written too")
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  if (const Result<void> outcome = dump(request); !outcome.ok()) {
    fmt::print(stderr, "dump_values: {}\n", outcome.error().message);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::main(argc, argv);
}
