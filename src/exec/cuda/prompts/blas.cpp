#include "exec/cuda/prompts/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>

namespace lockstep::exec::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = 32 << 20;

Result<void> check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return error("cuBLASLt: {}: status {}", call, static_cast<int>(status));
}

}  // namespace

// The functions that are used, by the names that they have in the library.
struct Blas::Library {
  void* library = nullptr;
  cublasLtHandle_t handle = nullptr;
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
  bool open() {
    const std::string versioned = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    for (const std::string& name :
         {versioned, "/usr/local/cuda/lib64/" + versioned,
          fmt::format("/usr/local/cuda/targets/x86_64-linux/lib/{}", versioned)}) {
      library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    return library != nullptr && find(create, "cublasLtCreate") &&
           find(destroy, "cublasLtDestroy") && find(matmul, "cublasLtMatmul") &&
           find(desc_create, "cublasLtMatmulDescCreate") &&
           find(desc_destroy, "cublasLtMatmulDescDestroy") &&
           find(desc_set, "cublasLtMatmulDescSetAttribute") &&
           find(layout_create, "cublasLtMatrixLayoutCreate") &&
           find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           find(preference_create, "cublasLtMatmulPreferenceCreate") &&
           find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           find(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           find(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           create(&handle) == CUBLAS_STATUS_SUCCESS;
  }
  ~Library() {  // stays loaded: unloading it is asking for trouble
    if (handle != nullptr) destroy(handle);
  }
};

// A product of one shape: how the matrices lie, and the algorithm that the library advises.
struct Blas::Shape {
  explicit Shape(const Library& l) : library(l) {}
  ~Shape() {
    if (desc != nullptr) library.desc_destroy(desc);
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout != nullptr) library.layout_destroy(layout);
  }
  const Library& library;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

Blas::Blas() : library_(std::make_unique<Library>()) {}
Blas::~Blas() {
  shapes_.clear();  // before the library that they need
}

std::unique_ptr<Blas> Blas::load() {
  std::unique_ptr<Blas> out(new Blas);
  if (!out->library_->open()) return nullptr;
  auto workspace = DeviceMemory::allocate(kWorkspaceBytes);
  auto constants = DeviceMemory::allocate(2 * sizeof(float));
  if (!workspace.ok() || !constants.ok()) return nullptr;
  constexpr float kValues[2] = {0, 1};
  if (cudaMemcpy(constants->data(), kValues, sizeof kValues, cudaMemcpyHostToDevice) !=
          cudaSuccess ||
      cudaStreamSynchronize(nullptr) != cudaSuccess)
    return nullptr;
  out->workspace_ = *std::move(workspace);
  out->constants_ = *std::move(constants);
  return out;
}

Result<const Blas::Shape*> Blas::shape(int64_t rows, int64_t columns, int64_t tokens, bool bias) {
  std::unique_ptr<Shape>& place = shapes_[{rows, columns, tokens, bias}];
  if (place != nullptr) return place.get();
  const Library& l = *library_;
  auto made = std::make_unique<Shape>(l);
  LS_TRY_VOID(check_blas(l.desc_create(&made->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                         "cublasLtMatmulDescCreate"));
  // The library thinks in columns: what is [rows, columns] here is its own transpose there.
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtPointerMode_t on_device = CUBLASLT_POINTER_MODE_DEVICE;
  LS_TRY_VOID(check_blas(
      l.desc_set(made->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
      "cublasLtMatmulDescSetAttribute"));
  LS_TRY_VOID(check_blas(
      l.desc_set(made->desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &on_device, sizeof on_device),
      "cublasLtMatmulDescSetAttribute"));
  const cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  LS_TRY_VOID(
      check_blas(l.desc_set(made->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue),
                 "cublasLtMatmulDescSetAttribute"));
  const auto n = [](int64_t value) { return static_cast<uint64_t>(value); };
  LS_TRY_VOID(check_blas(l.layout_create(&made->a, CUDA_R_16F, n(columns), n(rows), columns),
                         "cublasLtMatrixLayoutCreate"));
  LS_TRY_VOID(check_blas(l.layout_create(&made->b, CUDA_R_16F, n(columns), n(tokens), columns),
                         "cublasLtMatrixLayoutCreate"));
  LS_TRY_VOID(check_blas(l.layout_create(&made->c, CUDA_R_32F, n(rows), n(tokens), rows),
                         "cublasLtMatrixLayoutCreate"));
  cublasLtMatmulPreference_t preference = nullptr;
  LS_TRY_VOID(check_blas(l.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
  const auto bytes = static_cast<size_t>(kWorkspaceBytes);
  l.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = l.heuristic(l.handle, made->desc, made->a, made->b, made->c,
                                            made->c, preference, 1, &result, &found);
  l.preference_destroy(preference);
  LS_TRY_VOID(check_blas(status, "cublasLtMatmulAlgoGetHeuristic"));
  if (found == 0)
    return error("cuBLASLt has no way to multiply [{}, {}] with {} rows", rows, columns, tokens);
  made->algorithm = result.algo;
  place = std::move(made);
  return place.get();
}

Result<void> Blas::multiply(const void* weight, const void* x, const float* bias, float* out,
                            int64_t rows, int64_t columns, int64_t tokens, const float* alpha,
                            bool add, cudaStream_t stream) {
  LS_TRY(const Shape* s, shape(rows, columns, tokens, bias != nullptr));
  if (bias != nullptr)
    LS_TRY_VOID(check_blas(
        library_->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
        "cublasLtMatmulDescSetAttribute"));
  const float* beta = constants_.as<float>() + (add ? 1 : 0);
  return check_blas(library_->matmul(library_->handle, s->desc, alpha, weight, s->a, x, s->b, beta,
                                     out, s->c, out, s->c, &s->algorithm, workspace_.data(),
                                     static_cast<size_t>(kWorkspaceBytes), stream),
                    "cublasLtMatmul");
}

}  // namespace lockstep::exec::cuda
