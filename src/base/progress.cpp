#include "base/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "base/terminal.h"

namespace lockstep {

Progress::Progress(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(std::max<int64_t>(total, 1)),
      visible_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_) {}

Progress::~Progress() {
  hide();
}

void Progress::hide() {
  if (!visible_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::label(std::string text) {
  label_ = std::move(text);
  draw(true);
}

void Progress::advance(int64_t amount, double share) {
  done_ += amount;
  share_ = share > 0 ? share : static_cast<double>(done_) / static_cast<double>(total_);
  draw(done_ == total_);
}

void Progress::draw(bool force) {
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (!force && now - last_draw_ < std::chrono::milliseconds(50)) return;
  last_draw_ = now;
  const double share = std::min(1.0, share_);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string tail =
      fmt::format(" {:3.0f}% {}/{} {} {:.0f}s left", 100 * share, done_, total_, unit_,
                  share > 0 ? seconds * (1 - share) / share : 0.0);
  const int64_t room =
      terminal_width(STDERR_FILENO, 80) - static_cast<int64_t>(label_.size() + tail.size()) - 4;
  const int64_t width = std::clamp<int64_t>(room, 0, 40);
  const auto filled = static_cast<int64_t>(share * static_cast<double>(width));
  const std::string bar =
      width > 0 ? fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '#'),
                              std::string(static_cast<size_t>(width - filled), '.'))
                : "";
  const std::string line = fmt::format("\r\033[K{}{}{}", label_, bar, tail);
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
  std::fflush(stderr);
}

}  // namespace lockstep
