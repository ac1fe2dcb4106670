// lockstep audit: whether two files hold the same model.
#include <memory>

#include <unistd.h>

#include "audit/audit.h"
#include "base/progress.h"
#include "base/shown_text.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "hub/folder.h"

namespace lockstep::cli {
namespace audit_command {

struct Flags {
  std::string a;
  std::string b;
  bool all = false;
  bool json = false;
};

Result<int> run(const Flags& flags) {
  LS_TRY(const std::string path_a, model_path(flags.a));
  LS_TRY(const std::string path_b, model_path(flags.b));
  LS_TRY(const gguf::File a, hub::open(path_a));
  LS_TRY(const gguf::File b, hub::open(path_b));
  constexpr int64_t kMegabyte = 1000000;
  int64_t done = 0;
  audit::Audit found;
  {
    Progress progress("audit", (a.size_bytes() + b.size_bytes()) / kMegabyte, "MB");
    LS_TRY(found, audit::audit(a, b, [&](int64_t bytes) {
             const int64_t before = done / kMegabyte;
             done += bytes;
             progress.advance(done / kMegabyte - before);
           }));
  }
  LS_TRY_VOID(a.check_unchanged());
  LS_TRY_VOID(b.check_unchanged());
  if (flags.json)
    fmt::print("{}\n", json_text(audit::to_json(found)));
  else
    fmt::print("{}", audit::to_text(found, terminal_width(STDOUT_FILENO, INT64_MAX),
                                    Paint(terminal_colours(STDOUT_FILENO)), flags.all));
  return found.equal() ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "a", flags->a, kModel, "The model that you trust")->required();
  add_value(app, "b", flags->b, kModel, "The model in question: converted, quantized, edited")
      ->required();
  app.add_flag("--all", flags->all, "Every tensor, not only those that are wrong");
  app.add_flag("--json", flags->json, "As JSON (docs/audit.md)");
  return [flags] { return run(*flags); };
}

}  // namespace audit_command

extern const Command kAuditCommand = {
    "audit", "Tell whether two files hold the same model, and what is wrong",
    "  lockstep audit model-f16.gguf model-q4_k_m.gguf\n"
    "  lockstep audit theirs.gguf mine.gguf --all\n"
    "  lockstep audit theirs.gguf mine.gguf --json | jq '.tensors[] | select(.verdict == "
    "\"wrong\")'\n"
    "\n"
    "A tensor is equal (the same numbers), quantized (off by what its format explains), wrong\n"
    "(transposed, permuted, offset, scaled, halves_swapped, other_layer, other_tensor, unknown),\n"
    "missing or extra. Errors are root mean squares, relative to that of the values.\n"
    "Exit status: 0 the same model, quantization aside; 1 not; 2 a file cannot be read.\n",
    audit_command::declare};

}  // namespace lockstep::cli
