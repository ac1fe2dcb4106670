// The cost of single tensors: the whole pass is run once on a sample of the text, and what goes
// from layer to layer is kept. With another tensor in a layer, only that layer and those after it
// run.
#include <algorithm>
#include <optional>

#include "base/parallel.h"
#include "quality/distributions.h"
#include "quality/piece.h"
#include "quality/program_weights.h"
#include "quality/quality.h"
#include "quality/recipe.h"

namespace lockstep::quality {
namespace {

// The values at the cuts, of one window after another.
class CutValues : public op::Observer {
 public:
  explicit CutValues(const std::vector<Cut>& cuts) : cuts_(cuts) {}

  void begin_window() { kept_.emplace_back(cuts_.size()); }
  bool wants(op::ValueId id) const override {
    return std::ranges::find(cuts_, id, &Cut::value) != cuts_.end();
  }
  void see(op::ValueId id, const View& view) override {
    for (size_t i = 0; i < cuts_.size(); ++i) {
      if (cuts_[i].value != id) continue;
      std::vector<float>& rows = kept_.back()[i];
      for (int64_t k = 0; k < view.size(); ++k) rows.push_back(static_cast<float>(view.at(k)));
    }
  }

  std::span<const float> at(size_t window, size_t cut) const { return kept_[window][cut]; }

 private:
  const std::vector<Cut>& cuts_;
  std::vector<std::vector<std::vector<float>>> kept_;
};

using TokenKl = std::vector<double>;

// One file with single tensors of the other.
class Swaps {
 public:
  Swaps(const op::Program& base, const op::Program& other, const std::vector<Window>& windows,
        const Setting& setting, const std::string& path)
      : base_(base),
        other_(other),
        windows_(windows),
        setting_(setting),
        path_(path),
        cuts_(cuts_of(base)),
        values_(cuts_),
        threads_(setting.options.threads > 0 ? setting.options.threads : available_cores()) {}

  // The file as it is: its logits, window by window.
  Result<std::vector<LogitRows>> run_base() {
    LS_TRY(const auto executor, setting_.device->create(base_, setting_.options));
    std::vector<LogitRows> out;
    for (const Window& window : windows_) {
      values_.begin_window();
      LS_TRY(LogitRows rows,
             scored_logits(*executor, window.tokens, window.first_scored, &values_));
      LS_TRY_VOID(check_finite(rows, path_));
      out.push_back(std::move(rows));
    }
    return out;
  }

  // Divergences of all scored tokens, with the tensor of the other file.
  Result<TokenKl> with(const Tensor& tensor, const std::vector<LogitRows>& reference) {
    const size_t first = segment_of(tensor.ops.front());
    const bool in_one = segment_of(tensor.ops.back()) == first;
    const bool alone = first > 0 && in_one && Piece::reads_anew(*setting_.device);
    const size_t begin = begin_of(first);
    const size_t end = alone ? end_of(first) : base_.ops.size();
    Piece changed(base_, with_weights_of(base_, other_, tensor, begin, end), input_of(first),
                  setting_);
    const bool ends = end == base_.ops.size();
    if (!ends && tail_begin_ != end) {
      tail_begin_ = end;
      tail_.reset();
      tail_.emplace(
          base_, std::vector(base_.ops.begin() + static_cast<std::ptrdiff_t>(end), base_.ops.end()),
          input_of(first + 1), setting_);
    }
    TokenKl out;
    for (size_t w = 0; w < windows_.size(); ++w) {
      LS_TRY(const LogitRows logits, run(changed, ends ? nullptr : &*tail_, first, w));
      LS_TRY_VOID(check_finite(logits, path_));
      const Window& window = windows_[w];
      const auto tokens =
          std::span(window.tokens).subspan(static_cast<size_t>(window.first_scored));
      for (const TokenScore& token : score_rows(reference[w], logits, tokens, threads_))
        out.push_back(token.kl);
    }
    return out;
  }

 private:
  // Segment 0 is before the first cut.
  size_t segment_of(size_t op) const {
    return static_cast<size_t>(
        std::ranges::count_if(cuts_, [&](const Cut& cut) { return cut.op <= op; }));
  }
  size_t begin_of(size_t segment) const { return segment == 0 ? 0 : cuts_[segment - 1].op; }
  size_t end_of(size_t segment) const {
    return segment < cuts_.size() ? cuts_[segment].op : base_.ops.size();
  }
  op::ValueId input_of(size_t segment) const {
    return segment == 0 ? -1 : cuts_[segment - 1].value;
  }

  Result<LogitRows> run(Piece& changed, Piece* tail, size_t segment, size_t w) {
    const Window& window = windows_[w];
    const auto input = segment == 0 ? std::span<const float>() : values_.at(w, segment - 1);
    LS_TRY(exec::Executor * executor, changed.with_input(input));
    const std::vector<exec::TokenId> zeros(window.tokens.size());
    if (tail == nullptr)
      return scored_logits(*executor, segment == 0 ? window.tokens : zeros, window.first_scored);
    // The last token's logits are not needed.
    const auto tokens = std::span<const exec::TokenId>(zeros).first(zeros.size() - 1);
    LS_TRY(const View rows, executor->run({.tokens = tokens, .all_logits = true}));
    LogitRows handed_on;
    handed_on.append(rows);
    LS_TRY(executor, tail->with_input(handed_on.values));
    return scored_logits(*executor, zeros, window.first_scored);
  }

  const op::Program& base_;
  const op::Program& other_;
  const std::vector<Window>& windows_;
  const Setting& setting_;
  const std::string path_;
  std::vector<Cut> cuts_;
  CutValues values_;
  int threads_;
  std::optional<Piece> tail_;  // the ops from tail_begin_ on: of all tensors of a layer
  size_t tail_begin_ = 0;
};

TensorCost describe(const Tensor& tensor) {
  return {.name = tensor.name(),
          .format_reference = tensor.reference->format,
          .format_suspect = tensor.suspect->format,
          .values = tensor.suspect->rows * tensor.suspect->columns,
          .bytes_reference = static_cast<int64_t>(tensor.reference->data.size()),
          .bytes_suspect = static_cast<int64_t>(tensor.suspect->data.size()),
          .equal = tensor.equal()};
}

}  // namespace

Result<Ranking> rank_tensors(const model::Model& reference, const model::Model& suspect,
                             const std::vector<Window>& windows, const Setting& setting,
                             const Advance& advance) {
  Ranking ranking;
  std::vector<int64_t> runs;
  ranking.context = windows.front().first_scored;
  for (const Window& window : windows) {
    ranking.context = std::min(ranking.context, window.first_scored);
    ranking.window = std::max(ranking.window, static_cast<int64_t>(window.tokens.size()));
    runs.push_back(window.scored());
  }
  LS_TRY(const op::Program reference_program, reference.program(ranking.window));
  LS_TRY(const op::Program suspect_program, suspect.program(ranking.window));
  const Blocks blocks(number_blocks(runs));
  ranking.tokens = blocks.tokens();
  ranking.blocks = blocks.count();
  ranking.windows = static_cast<int64_t>(windows.size());

  const std::vector<Tensor> tensors = tensors_of(reference_program, suspect_program);
  int64_t all = 0, done = 0;
  for (const Tensor& tensor : tensors) {
    ranking.tensors.push_back(describe(tensor));
    all += ranking.tensors.back().equal ? 0 : 2;
  }

  std::vector<LogitRows> truth;
  {
    Swaps swaps(reference_program, suspect_program, windows, setting, suspect.file().path());
    LS_TRY(truth, swaps.run_base());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (ranking.tensors[i].equal) continue;
      LS_TRY(const TokenKl kl, swaps.with(tensors[i], truth));
      ranking.tensors[i].alone = blocks.mean(kl);
      advance(++done, all);
    }
  }
  Swaps swaps(suspect_program, reference_program, windows, setting, suspect.file().path());
  TokenKl whole;
  {
    LS_TRY(const std::vector<LogitRows> logits, swaps.run_base());
    for (size_t w = 0; w < windows.size(); ++w) {
      const auto tokens =
          std::span(windows[w].tokens).subspan(static_cast<size_t>(windows[w].first_scored));
      for (const TokenScore& token : score_rows(truth[w], logits[w], tokens, 1))
        whole.push_back(token.kl);
    }
  }
  ranking.kl = blocks.mean(whole);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (ranking.tensors[i].equal) continue;
    LS_TRY(TokenKl kl, swaps.with(tensors[i], truth));
    for (size_t k = 0; k < kl.size(); ++k) kl[k] = whole[k] - kl[k];
    ranking.tensors[i].saved = blocks.mean(kl);
    advance(++done, all);
  }
  std::ranges::stable_sort(ranking.tensors, std::ranges::greater(),
                           [](const TensorCost& tensor) { return tensor.alone.value; });
  return ranking;
}

Result<std::vector<Interval>> costs_alone(const op::Program& reference, const op::Program& other,
                                          const std::vector<std::string>& names,
                                          const std::vector<Window>& windows,
                                          const Setting& setting) {
  std::vector<int64_t> runs;
  for (const Window& window : windows) runs.push_back(window.scored());
  const Blocks blocks(number_blocks(runs));
  Swaps swaps(reference, other, windows, setting, "the reference with other weights");
  LS_TRY(const std::vector<LogitRows> truth, swaps.run_base());
  const std::vector<Tensor> tensors = tensors_of(reference, other);
  std::vector<Interval> out;
  for (const std::string& name : names) {
    const auto tensor = std::ranges::find(tensors, name, &Tensor::name);
    LS_CHECK(tensor != tensors.end(), "no op takes {}", name);
    LS_TRY(const TokenKl kl, swaps.with(*tensor, truth));
    out.push_back(blocks.mean(kl));
  }
  return out;
}

}  // namespace lockstep::quality
