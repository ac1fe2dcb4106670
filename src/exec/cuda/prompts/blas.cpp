#include "exec/cuda/prompts/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include "exec/cuda/shared/stream.h"

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
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
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
           find(layout_set, "cublasLtMatrixLayoutSetAttribute") &&
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
  auto zero = DeviceMemory::allocate(sizeof(float));
  if (!workspace.ok() || !zero.ok() || cudaMemset(zero->data(), 0, sizeof(float)) != cudaSuccess ||
      cudaStreamSynchronize(nullptr) != cudaSuccess)
    return nullptr;
  out->workspace_ = *std::move(workspace);
  out->zero_ = *std::move(zero);
  if (!out->warm_up().ok()) return nullptr;
  return out;
}

// The first product takes the library 50 ms, for tables and kernels of its own.
Result<void> Blas::warm_up() {
  constexpr int64_t kSize = 64;
  Product product;
  product.weight = workspace_.data();
  product.x = workspace_.data();
  LS_TRY(const DeviceMemory out, DeviceMemory::allocate(kSize * kSize * 4));
  product.out = out.as<float>();
  product.alpha = zero_.as<float>();
  product.rows = product.columns = product.tokens = product.x_stride = kSize;
  LS_TRY(const Stream stream, Stream::create());
  LS_TRY_VOID(multiply(product, stream));
  return check(cudaStreamSynchronize(stream), "the first product of cuBLASLt");
}

Result<const Blas::Shape*> Blas::shape(const Product& p) {
  std::unique_ptr<Shape>& place = shapes_[{p.rows, p.columns, p.tokens, p.x_stride, p.count,
                                           p.out_stride, p.bias_stride, p.bias != nullptr}];
  if (place != nullptr) return place.get();
  const Library& l = *library_;
  auto made = std::make_unique<Shape>(l);
  LS_TRY_VOID(check_blas(l.desc_create(&made->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                         "cublasLtMatmulDescCreate"));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return check_blas(l.desc_set(made->desc, attribute, &value, sizeof value),
                      "cublasLtMatmulDescSetAttribute");
  };
  // The library thinks in columns: what is [rows, columns] here is its own transpose there.
  LS_TRY_VOID(set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  LS_TRY_VOID(set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE));
  LS_TRY_VOID(set(CUBLASLT_MATMUL_DESC_EPILOGUE,
                  p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT));
  if (p.count > 1 && p.bias != nullptr)
    LS_TRY_VOID(set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.bias_stride));
  // `apart`: numbers from one of the `count` to the next.
  const auto layout = [&](cublasLtMatrixLayout_t& out, cudaDataType type, int64_t width,
                          int64_t height, int64_t stride, int64_t apart) -> Result<void> {
    LS_TRY_VOID(check_blas(l.layout_create(&out, type, static_cast<uint64_t>(width),
                                           static_cast<uint64_t>(height), stride),
                           "cublasLtMatrixLayoutCreate"));
    if (p.count == 1) return {};
    const auto count = static_cast<int32_t>(p.count);
    LS_TRY_VOID(
        check_blas(l.layout_set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                   "cublasLtMatrixLayoutSetAttribute"));
    return check_blas(
        l.layout_set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart),
        "cublasLtMatrixLayoutSetAttribute");
  };
  LS_TRY_VOID(layout(made->a, CUDA_R_16F, p.columns, p.rows, p.columns, p.rows * p.columns));
  LS_TRY_VOID(layout(made->b, CUDA_R_16F, p.columns, p.tokens, p.x_stride, 0));
  LS_TRY_VOID(layout(made->c, CUDA_R_32F, p.rows, p.tokens, p.rows, p.out_stride));
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
    return error("cuBLASLt has no way to multiply [{}, {}] with {} rows", p.rows, p.columns,
                 p.tokens);
  made->algorithm = result.algo;
  place = std::move(made);
  return place.get();
}

Result<void> Blas::multiply(const Product& p, cudaStream_t stream) {
  LS_TRY(const Shape* s, shape(p));
  if (p.bias != nullptr)
    LS_TRY_VOID(check_blas(
        library_->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias),
        "cublasLtMatmulDescSetAttribute"));
  return check_blas(
      library_->matmul(library_->handle, s->desc, p.alpha, p.weight, s->a, p.x, s->b, zero_.data(),
                       p.out, s->c, p.out, s->c, &s->algorithm, workspace_.data(),
                       static_cast<size_t>(kWorkspaceBytes), stream),
      "cublasLtMatmul");
}

}  // namespace lockstep::exec::cuda
