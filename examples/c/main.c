/* One projection of a real model from C: open the bundle, launch, look at the result. No CUDA header, no Python.
 *
 *     nkc compile ../qwen3.6-35b.o_proj.m1.sm_90.json -o build
 *     nkc emit-c build -o build
 *     cc -std=c11 -Wall -Wextra -Werror -Ibuild main.c build/nkc_kernels.c -o build/main -ldl && build/main
 *
 * All operands are 1.0 and all scales 1.0, so every output is k exactly, in every order of additions.
 */
#include "nkc_kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2048, K = 4096, BLOCK = 128 };
enum { FP8_ONE = 0x38, BF16_K = 0x4580 }; /* 1.0 in e4m3, 4096.0 in bf16 */

/* The few driver calls that a caller needs for its own memory; nkc opens the driver by itself. */
static struct {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*allocate)(void **, size_t);
    int (*to_device)(void *, const void *, size_t);
    int (*to_host)(void *, const void *, size_t);
    int (*synchronize)(void);
} cuda;

static void find(void *library, void *call, const char *name) {
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    memcpy(call, &address, sizeof address);
}

static void must(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s failed: %d\n", what, code);
    exit(1);
}

/* Device memory that holds `bytes` copies of a byte, or `bytes / 4` copies of a float. */
static void *filled(size_t bytes, int byte, const float *value) {
    void *device;
    unsigned char *host = malloc(bytes);
    if (!host) exit(1);
    memset(host, byte, bytes);
    if (value)
        for (size_t at = 0; at + sizeof *value <= bytes; at += sizeof *value) memcpy(host + at, value, sizeof *value);
    must(cuda.allocate(&device, bytes), "allocating");
    must(cuda.to_device(device, host, bytes), "copying to the device");
    free(host);
    return device;
}

static void report(const char *what, const nkc_kernels_failure *failure) {
    char text[256];
    nkc_kernels_describe(failure, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
}

int main(void) {
    nkc_kernels_library *library;
    nkc_kernels_failure failure;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    const float one = 1.0f;
    int device;
    if (!driver) {
        fprintf(stderr, "no CUDA driver on this machine\n");
        return 1;
    }
    find(driver, &cuda.init, "cuInit");
    find(driver, &cuda.device, "cuDeviceGet");
    find(driver, &cuda.retain, "cuDevicePrimaryCtxRetain");
    find(driver, &cuda.push, "cuCtxPushCurrent_v2");
    find(driver, &cuda.allocate, "cuMemAlloc_v2");
    find(driver, &cuda.to_device, "cuMemcpyHtoD_v2");
    find(driver, &cuda.to_host, "cuMemcpyDtoH_v2");
    find(driver, &cuda.synchronize, "cuCtxSynchronize");
    must(cuda.init(0), "cuInit");
    must(cuda.device(&device, 0), "finding the device");
    must(cuda.retain(&context, device), "retaining the context");
    must(cuda.push(context), "making the context current");

    if (nkc_kernels_open(0, NULL, &library, &failure)) {
        report("open", &failure);
        return 1;
    }
    nkc_kernels_fp8_e4m3 *a = filled(K, FP8_ONE, NULL), *b = filled((size_t)N * K, FP8_ONE, NULL);
    float *a_scales = filled(K / BLOCK * sizeof one, 0, &one);
    float *b_scales = filled(N / BLOCK * (K / BLOCK) * sizeof one, 0, &one);
    nkc_kernels_bf16 *out = filled(N * sizeof *out, 0xff, NULL);

    /* Guards first: an output in the middle of an input never reaches the device. */
    if (nkc_kernels_for_qwen3_6_35b_o_proj_m1_sm_90(library, a, b, a_scales, b_scales, (nkc_kernels_bf16 *)(void *)b, NULL,
            NULL, &failure) != NKC_KERNELS_ERROR_ALIASING) {
        fprintf(stderr, "an output over an input was not refused\n");
        return 1;
    }
    report("refused, as it should be", &failure);

    if (nkc_kernels_for_qwen3_6_35b_o_proj_m1_sm_90(library, a, b, a_scales, b_scales, out, NULL, NULL, &failure)) {
        report("launch", &failure);
        return 1;
    }
    static nkc_kernels_bf16 result[N];
    must(cuda.synchronize(), "waiting");
    must(cuda.to_host(result, out, sizeof result), "copying to the host");
    for (int column = 0; column < N; column++)
        if (result[column].bits != BF16_K) {
            fprintf(stderr, "out[%d] is %04x, not %04x\n", column, (unsigned)result[column].bits, (unsigned)BF16_K);
            return 1;
        }
    nkc_kernels_close(library);
    printf("all %d outputs are %d, as they should be\n", N, K);
    return 0;
}
