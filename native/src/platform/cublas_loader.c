/* Opens cuBLAS when llama.cpp counts the GPUs, so that a library built for CUDA also loads on a machine without it. The
 * linker sends llama.cpp's calls of cudaGetDeviceCount here (--wrap). Without cuBLAS there are no GPUs to use.
 *
 * This is C, because cuBLAS's header overloads some of the functions in C++. */

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stddef.h>

#define TEXT_OF(value) #value
#define FILE_NAME(major) "libcublas.so." TEXT_OF(major)

/* Every function of cuBLAS that llama.cpp calls. */
#define FOR_EACH_FUNCTION(DO)      \
    DO(cublasCreate_v2)            \
    DO(cublasDestroy_v2)           \
    DO(cublasGemmBatchedEx)        \
    DO(cublasGemmEx)               \
    DO(cublasGemmStridedBatchedEx) \
    DO(cublasGetStatusString)      \
    DO(cublasSetMathMode)          \
    DO(cublasSetStream_v2)         \
    DO(cublasSetWorkspace_v2)      \
    DO(cublasSgemmBatched)         \
    DO(cublasSgemmStridedBatched)  \
    DO(cublasSgemm_v2)             \
    DO(cublasStrsmBatched)

#define DECLARE(name) __typeof__(name) * name;
static struct {
    FOR_EACH_FUNCTION(DECLARE)
} found;

#define FIND(name) &&(found.name = (__typeof__(name) *)dlsym(library, #name)) != NULL
static int open_cublas(void) {
    void * library = dlopen(FILE_NAME(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    return library != NULL FOR_EACH_FUNCTION(FIND);
}

cudaError_t __real_cudaGetDeviceCount(int * count);

cudaError_t __wrap_cudaGetDeviceCount(int * count) {
    const cudaError_t error = __real_cudaGetDeviceCount(count);
    if (error != cudaSuccess || *count == 0 || open_cublas()) {
        return error;
    }
    *count = 0;
    return cudaErrorNoDevice;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t * handle) { return found.cublasCreate_v2(handle); }

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return found.cublasDestroy_v2(handle); }

const char * cublasGetStatusString(cublasStatus_t status) { return found.cublasGetStatusString(status); }

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    return found.cublasSetMathMode(handle, mode);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    return found.cublasSetStream_v2(handle, stream);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void * workspace, size_t size) {
    return found.cublasSetWorkspace_v2(handle, workspace, size);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                              int k, const float * alpha, const float * a, int lda, const float * b, int ldb,
                              const float * beta, float * c, int ldc) {
    return found.cublasSgemm_v2(handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                  int n, int k, const float * alpha, const float * const a[], int lda,
                                  const float * const b[], int ldb, const float * beta, float * const c[], int ldc,
                                  int count) {
    return found.cublasSgemmBatched(handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float * alpha, const float * a, int lda,
                                         long long stride_a, const float * b, int ldb, long long stride_b,
                                         const float * beta, float * c, int ldc, long long stride_c, int count) {
    return found.cublasSgemmStridedBatched(handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b,
                                           beta, c, ldc, stride_c, count);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void * alpha, const void * a, cudaDataType a_type, int lda, const void * b,
                            cudaDataType b_type, int ldb, const void * beta, void * c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm) {
    return found.cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type,
                              ldc, compute_type, algorithm);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                   int n, int k, const void * alpha, const void * const a[], cudaDataType a_type,
                                   int lda, const void * const b[], cudaDataType b_type, int ldb, const void * beta,
                                   void * const c[], cudaDataType c_type, int ldc, int count,
                                   cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm) {
    return found.cublasGemmBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
                                     c_type, ldc, count, compute_type, algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void * alpha, const void * a, cudaDataType a_type,
                                          int lda, long long stride_a, const void * b, cudaDataType b_type, int ldb,
                                          long long stride_b, const void * beta, void * c, cudaDataType c_type, int ldc,
                                          long long stride_c, int count, cublasComputeType_t compute_type,
                                          cublasGemmAlgo_t algorithm) {
    return found.cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type,
                                            ldb, stride_b, beta, c, c_type, ldc, stride_c, count, compute_type,
                                            algorithm);
}

cublasStatus_t cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill,
                                  cublasOperation_t trans, cublasDiagType_t diagonal, int m, int n, const float * alpha,
                                  const float * const a[], int lda, float * const b[], int ldb, int count) {
    return found.cublasStrsmBatched(handle, side, fill, trans, diagonal, m, n, alpha, a, lda, b, ldb, count);
}
