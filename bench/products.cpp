// How fast one core multiplies: every format and kind of machine, for prompts in multiply-adds and
// for generation in bytes of weights a second. In processor time, so that other work on the machine
// disturbs little.
//   bench_products [model, not used] [format] [target]
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/random.h"
#include "exec/cpu/columns.h"
#include "exec/cpu/kernels/targets.h"
#include "exec/cpu/pack.h"

namespace lockstep::exec::cpu {
namespace {

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Setup {
  std::vector<std::byte> file, panels;
  op::Weight weight;
};

Setup make(Random& random, const quant::FormatInfo& format, int64_t rows, int64_t columns) {
  Setup out;
  out.file.resize(static_cast<size_t>(quant::size_bytes(format, rows * columns)));
  // Any bits will do for the codes; small ones keep half-precision scales finite.
  for (std::byte& byte : out.file) byte = static_cast<std::byte>(random.below(100));
  if (format.format() == quant::Format::kF32)
    for (size_t i = 0; i < out.file.size(); i += 4) {
      const auto value = static_cast<float>(random.gaussian());
      std::memcpy(out.file.data() + i, &value, 4);
    }
  out.weight = {"weight", &format, rows, columns, out.file};
  const int64_t bytes = panel_bytes(out.weight);
  out.panels.resize(static_cast<size_t>(panel_count(out.weight) * bytes));
  for (int64_t i = 0; i < panel_count(out.weight); ++i)
    pack_panel(out.weight, i, out.panels.data() + i * bytes);
  return out;
}

// Runs a second of work and returns the time of one run.
double time_product(const Setup& setup, const Kernels& kernels, int64_t columns) {
  Random random(1);
  std::vector<float> x(static_cast<size_t>(setup.weight.columns * columns));
  for (float& value : x) value = static_cast<float>(random.gaussian());
  ColumnBuffer buffer;
  buffer.set_up(takes_codes(setup.weight), !takes_codes(setup.weight));
  buffer.reserve(setup.weight.columns, columns);
  buffer.fill(kernels, x.data(), setup.weight.columns, columns, 0, columns);
  const Columns view = buffer.view(setup.weight.columns, columns);
  std::vector<float> out(static_cast<size_t>(setup.weight.rows * columns));
  std::vector<std::byte> scratch(static_cast<size_t>(product_scratch_bytes(columns)));
  const Product product{.panels = setup.panels.data(),
                        .panel_bytes = panel_bytes(setup.weight),
                        .rows = setup.weight.rows,
                        .x = &view,
                        .out = out.data(),
                        .out_stride = setup.weight.rows,
                        .scratch = scratch.data()};
  const ProductKernel kernel = product_kernel(kernels, setup.weight);
  const int64_t panels = panel_count(setup.weight);
  kernel(product, 0, panels);
  double best = 1e9;
  const double start = seconds();
  while (seconds() < start + 0.3) {
    const double before = seconds();
    kernel(product, 0, panels);
    best = std::min(best, seconds() - before);
  }
  return best;
}

}  // namespace
}  // namespace lockstep::exec::cpu

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::exec::cpu;
  const std::string only_format = argc > 2 ? argv[2] : "", only_target = argc > 3 ? argv[3] : "";
  std::printf("%-8s %-11s %18s %18s %18s\n", "format", "target", "prompt, G mul-adds/s",
              "generation, GB/s", "from cache, GB/s");
  for (const quant::FormatInfo& format : quant::all_formats()) {
    if (!format.decodable || (!only_format.empty() && format.name != only_format)) continue;
    Random random(7);
    const Setup small = make(random, format, 512, 2048);
    const Setup large = make(random, format, 16384, 4096);
    for (const Target& target : targets()) {
      if (!target.supported() || (!only_target.empty() && target.name != only_target)) continue;
      const double prompt = time_product(small, *target.kernels, 128);
      const double cached = time_product(small, *target.kernels, 1);
      const double generation = time_product(large, *target.kernels, 1);
      std::printf("%-8s %-11s %18.1f %18.1f %18.1f\n", std::string(format.name).c_str(),
                  std::string(target.name).c_str(), 512.0 * 2048 * 128 / prompt / 1e9,
                  static_cast<double>(large.panels.size()) / generation / 1e9,
                  static_cast<double>(small.panels.size()) / cached / 1e9);
    }
  }
}
