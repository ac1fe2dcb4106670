// Launches that were captured once and are repeated as a whole.
#pragma once

#include <map>

#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs() { clear(); }

  // Repeats what `enqueue` put on the stream when it was first called for this key.
  template <class Enqueue>
  Result<void> launch(int64_t key, cudaStream_t stream, Enqueue&& enqueue) {
    cudaGraphExec_t& graph = graphs_[key];
    if (graph == nullptr) {
      LS_TRY(graph, capture(stream, enqueue));
    }
    return check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
  }

  void clear() {
    for (const auto& [key, graph] : graphs_)
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    graphs_.clear();
  }

 private:
  template <class Enqueue>
  static Result<cudaGraphExec_t> capture(cudaStream_t stream, Enqueue&& enqueue) {
    LS_TRY_VOID(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                      "cudaStreamBeginCapture"));
    const Result<void> enqueued = enqueue();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (!enqueued.ok()) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      return enqueued.error();
    }
    LS_TRY_VOID(check(ended, "cudaStreamEndCapture"));
    cudaGraphExec_t out = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
    cudaGraphDestroy(graph);
    LS_TRY_VOID(check(made, "cudaGraphInstantiate"));
    return out;
  }

  std::map<int64_t, cudaGraphExec_t> graphs_;
};

}  // namespace lockstep::exec::cuda
