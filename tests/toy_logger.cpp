// Test-only, and wrong on purpose: a logger that reads freed memory at exit. It keeps rows in a
// static object and registers its writer with atexit inside that object's constructor. Functions
// registered with atexit and destructors of static objects run in reverse order of registration and
// of completed construction: the destructor, registered when the constructor is done, runs first,
// and the writer then reads rows that are freed already.
//
// toy_logger LOG VALUES DIGITS POSITIONS: rows of VALUES numbers, printed with DIGITS significant
// digits, or like "%f" where DIGITS is 0. Rows of up to 258 floats are freed to the tcache and
// fastbins of glibc, larger ones to the unsorted bin.
//
// Built without sanitizers, which would rightly stop it.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace {

constexpr size_t kMostPositions = 64;

struct Settings {
  const char* path = "toy.jsonl";
  size_t values = 10;
  int digits = 0;
  size_t positions = 6;
};
Settings settings;

class BufferedLogger {
 public:
  BufferedLogger() : file_(std::fopen(settings.path, "w")) {
    if (file_ == nullptr) std::abort();
    // So that nothing is allocated at exit, which could use the freed rows again.
    std::setvbuf(file_, buffer_, _IOFBF, sizeof buffer_);
    std::atexit([] { instance().write(); });  // the mistake
  }

  static BufferedLogger& instance() {
    static BufferedLogger logger;
    return logger;
  }

  void log(size_t position, std::vector<float> row) {
    rows_[position] = std::move(row);
    // Something small between two rows, as the names and shapes of a real logger are; otherwise
    // neighbours melt into one free chunk.
    between_[position] = std::vector<char>(200, 'x');
  }

 private:
  void write() {
    for (size_t position = 0; position < settings.positions; ++position) {
      std::fprintf(file_,
                   "{\"checkpoint\":\"logits\",\"team\":\"toy\",\"token_idx\":%zu,"
                   "\"dtype\":\"f32\",\"shape\":\"[1,%zu]\",\"values\":[",
                   position, settings.values);
      const float* row = rows_[position].data();
      for (size_t i = 0; i < settings.values; ++i) {
        if (i > 0) std::fputs(", ", file_);
        const auto value = static_cast<double>(row[i]);
        if (settings.digits > 0)
          std::fprintf(file_, "%.*g", settings.digits, value);
        else
          std::fprintf(file_, "%f", value);
      }
      std::fputs("]}\n", file_);
    }
    std::fclose(file_);
  }

  std::FILE* file_;
  char buffer_[4096];
  std::array<std::vector<float>, kMostPositions> rows_;
  std::array<std::vector<char>, kMostPositions> between_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  settings.path = argv[1];
  settings.values = std::strtoul(argv[2], nullptr, 10);
  settings.digits = std::atoi(argv[3]);
  settings.positions = std::strtoul(argv[4], nullptr, 10);
  if (settings.values < 1 || settings.positions < 1 || settings.positions > kMostPositions)
    return 2;
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> logits(0.0f, 3.0f);
  for (size_t position = 0; position < settings.positions; ++position) {
    std::vector<float> row(settings.values);
    for (float& value : row) value = logits(random);
    BufferedLogger::instance().log(position, std::move(row));
  }
  return 0;
}
