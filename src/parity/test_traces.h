// Test-only: small traces made by the reference executor, to be altered by hand and written.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "exec/registry.h"
#include "forge/forge.h"
#include "gguf/fingerprint.h"
#include "gguf/quantize.h"
#include "model/model.h"
#include "trace/shard_writer.h"
#include "trace/trace.h"

namespace lockstep::parity {

// A trace in memory, of one step or two.
struct Recording {
  struct Value {
    std::vector<int64_t> shape;  // [tokens, width], or [heads, tokens, positions]
    std::vector<double> numbers;
  };
  trace::Manifest manifest;
  std::vector<std::string> order;
  std::map<std::string, Value> values;
  int64_t first_position = 0;
  int64_t second_step = 0;                     // its first position; 0: there is none
  std::map<std::string, int64_t> full_widths;  // of rows that were cut off

  double& at(const std::string& name, int64_t position, int64_t index) {
    Value& value = values.at(name);
    return value.numbers.at(static_cast<size_t>(position * value.shape[1] + index));
  }
  void remove(const std::string& name) {
    values.erase(name);
    std::erase(order, name);
  }
};

class RecordingObserver : public op::Observer {
 public:
  RecordingObserver(const op::Program& program, Recording& out) : program_(program), out_(out) {}
  void begin_step(int64_t, int64_t) override {}
  bool wants(op::ValueId id) const override { return program_.value(id).checkpoint; }
  void see(op::ValueId id, const View& view) override {
    Recording::Value value{view.shape, {}};
    for (int64_t i = 0; i < view.size(); ++i) value.numbers.push_back(view.at(i));
    out_.order.push_back(program_.value(id).name);
    out_.values[program_.value(id).name] = std::move(value);
  }
  void end_step(bool) override {}

 private:
  const op::Program& program_;
  Recording& out_;
};

// A forged model and what it computes from some tokens.
class TracedModel {
 public:
  explicit TracedModel(const forge::Spec& spec = {}) {
    const auto written = forge::write_model(spec, place("model.gguf"));
    if (!written.ok()) throw std::runtime_error(written.error().message);
    model_ = std::make_unique<model::Model>(model::Model::load(place("model.gguf")).value());
  }

  // The same model in another format.
  TracedModel(const model::Model& source, const char* recipe) {
    const gguf::QuantizeOptions options{quant::find_recipe(recipe), true, true};
    const auto plan = gguf::plan_quantization(source.file(), options).value();
    const auto written = gguf::quantize(source.file(), plan, place("model.gguf"), [](int64_t) {});
    if (!written.ok()) throw std::runtime_error(written.error().message);
    model_ = std::make_unique<model::Model>(model::Model::load(place("model.gguf")).value());
  }

  const model::Model& model() const { return *model_; }
  std::string model_path() const { return place("model.gguf"); }

  // `context`: 0: as many positions as there are tokens.
  Recording record(const std::vector<int32_t>& tokens, int64_t prompt_tokens,
                   int64_t context = 0) const {
    Recording out;
    const auto program = model_->program(context > 0 ? context : std::ssize(tokens)).value();
    const auto executor = exec::find_device("reference").value()->create(program, {}).value();
    RecordingObserver observer(program, out);
    exec::Step step{tokens, true, &observer, nullptr};
    EXPECT_TRUE(executor->run(step).ok());
    out.manifest.engine = {"test", "1", "cpu", {"f64", {}, {}}};
    out.manifest.model.file = "model.gguf";
    out.manifest.model.architecture = model_->file().text("general.architecture").value();
    out.manifest.model.fingerprint = gguf::fingerprint(model_->file());
    out.manifest.tokens = tokens;
    out.manifest.prompt_tokens = prompt_tokens;
    return out;
  }

  // Writes it in a folder of its own and opens that.
  trace::Trace write(const Recording& recording, DType dtype = DType::kF64) const {
    const std::string folder = place(fmt::format("trace{}", count_++));
    std::filesystem::create_directory(folder);
    trace::Manifest manifest = recording.manifest;
    const auto tokens = manifest.tokens;
    const auto& any = recording.values.begin()->second.shape;
    const int64_t rows = any.size() == 3 ? any[1] : any[0];
    for (const std::string& name : recording.order) {
      const auto& value = recording.values.at(name);
      manifest.checkpoints.push_back(
          {name, dtype, value.shape.size() == 3 ? value.shape[0] : value.shape[1]});
      if (const auto full = recording.full_widths.find(name); full != recording.full_widths.end())
        manifest.checkpoints.back().full_width = full->second;
    }
    trace::ShardWriter writer(folder, manifest);
    EXPECT_TRUE(writer.start().ok());
    const int64_t split = recording.second_step > 0 ? recording.second_step : rows;
    write_step(recording, dtype, {0, recording.first_position, split, ""}, 0, writer);
    if (split < rows) write_step(recording, dtype, {1, split, rows - split, ""}, split, writer);
    EXPECT_TRUE(writer.finish(tokens, 0).ok());
    auto opened = trace::Trace::open(folder);
    if (!opened.ok()) throw std::runtime_error(opened.error().message);
    return std::move(*opened);
  }

 private:
  // The rows from `first` on that the step has; a second step has no scores.
  static void write_step(const Recording& recording, DType dtype, const trace::StepInfo& info,
                         int64_t first, trace::ShardWriter& writer) {
    std::vector<trace::StoredPlan> plans;
    std::vector<std::vector<double>> numbers;
    for (const std::string& name : recording.order) {
      const auto& value = recording.values.at(name);
      std::vector<int64_t> shape = value.shape;
      auto begin = value.numbers.begin();
      auto end = value.numbers.end();
      if (shape.size() == 2 && recording.second_step > 0) {
        begin += first * shape[1];
        end = begin + info.tokens * shape[1];
        shape[0] = info.tokens;
      }
      plans.push_back({fmt::format("{}/{}", info.index, name), dtype, shape});
      numbers.emplace_back(begin, end);
    }
    EXPECT_TRUE(writer.begin_step(info, plans).ok());
    for (size_t i = 0; i < plans.size(); ++i)
      EXPECT_TRUE(writer.put(i, bytes(numbers[i], dtype)).ok());
    EXPECT_TRUE(writer.end_step(true).ok());
  }

  static std::vector<std::byte> bytes(const std::vector<double>& numbers, DType dtype) {
    std::vector<std::byte> out;
    const auto put = [&](auto value) {
      const auto* first = reinterpret_cast<const std::byte*>(&value);
      out.insert(out.end(), first, first + sizeof value);
    };
    for (const double number : numbers) {
      if (dtype == DType::kF64) put(number);
      if (dtype == DType::kF32) put(static_cast<float>(number));
      if (dtype == DType::kF16) put(float_to_half(static_cast<float>(number)));
      if (dtype == DType::kBF16) put(float_to_bfloat(static_cast<float>(number)));
    }
    return out;
  }

  std::string place(const std::string& name) const { return (folder_.path() / name).string(); }

  const TemporaryFolder folder_ = TemporaryFolder::create().value();
  std::unique_ptr<model::Model> model_;
  mutable int count_ = 0;
};

}  // namespace lockstep::parity
