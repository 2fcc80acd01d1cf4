/* Host time of a launch from C: nkc's typed function with all guards against the bare driver call on the same kernel.
 *
 * Built by host_cost.py with -DLAUNCH=<function> and the emitted header; takes the object's path, the symbol, grid,
 * block, dynamic bytes, the operands' bytes and the parameters' number. Prints two medians in nanoseconds.
 */
#define _POSIX_C_SOURCE 200809L
#include "nkc_kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 200, ROUNDS = 101, OPERANDS = 5, PARAMETERS = 16 };

static struct {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*allocate)(void **, size_t);
    int (*clear)(void *, unsigned char, size_t);
    int (*load)(void **, const void *);
    int (*symbol)(void **, void *, const char *);
    int (*allow)(void *, int, int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*wait)(void);
} cuda;

static void must(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s failed: %d\n", what, code);
    exit(1);
}

static void find(void *library, void *call, const char *name) {
    void *address = dlsym(library, name);
    must(!address, name);
    memcpy(call, &address, sizeof address);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    must(argc != 11 + OPERANDS, "counting arguments");
    const char *path = argv[1], *name = argv[2];
    unsigned shape[7];
    for (int i = 0; i < 7; i++) shape[i] = (unsigned)strtoul(argv[3 + i], NULL, 10);
    int parameters = atoi(argv[10]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *function;
    must(!driver, "opening the driver");
    find(driver, &cuda.init, "cuInit");
    find(driver, &cuda.device, "cuDeviceGet");
    find(driver, &cuda.retain, "cuDevicePrimaryCtxRetain");
    find(driver, &cuda.push, "cuCtxPushCurrent_v2");
    find(driver, &cuda.allocate, "cuMemAlloc_v2");
    find(driver, &cuda.clear, "cuMemsetD8_v2");
    find(driver, &cuda.load, "cuModuleLoadData");
    find(driver, &cuda.symbol, "cuModuleGetFunction");
    find(driver, &cuda.allow, "cuFuncSetAttribute");
    find(driver, &cuda.launch, "cuLaunchKernel");
    find(driver, &cuda.wait, "cuCtxSynchronize");
    int device;
    must(cuda.init(0), "cuInit");
    must(cuda.device(&device, 0), "cuDeviceGet");
    must(cuda.retain(&context, device), "retaining the context");
    must(cuda.push(context), "making the context current");

    FILE *file = fopen(path, "rb");
    must(!file, "opening the object");
    static unsigned char image[1 << 24];
    must(fread(image, 1, sizeof image, file) == 0, "reading the object");
    fclose(file);
    must(cuda.load(&module, image), "loading");
    must(cuda.symbol(&function, module, name), "finding the kernel");
    if (shape[6]) must(cuda.allow(function, 8, (int)shape[6]), "allowing the dynamic LDS");

    void *operands[PARAMETERS] = { 0 }, *addresses[PARAMETERS];
    for (int i = 0; i < OPERANDS; i++) {
        size_t bytes = strtoull(argv[11 + i], NULL, 10);
        must(cuda.allocate(&operands[i], bytes), "allocating");
        must(cuda.clear(operands[i], 0, bytes), "clearing");
    }
    for (int i = 0; i < parameters; i++) addresses[i] = &operands[i];
    nkc_kernels_library *library;
    nkc_kernels_failure failure;
    must((int)nkc_kernels_open(0, NULL, &library, &failure), "nkc_kernels_open");

    static double bare[ROUNDS], ours[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        must(cuda.wait(), "waiting");
        double start = now();
        for (int i = 0; i < BATCH; i++)
            must(cuda.launch(function, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6], NULL, addresses,
                     NULL), "launching");
        bare[round] = (now() - start) / BATCH;
        must(cuda.wait(), "waiting");
        start = now();
        for (int i = 0; i < BATCH; i++)
            must((int)LAUNCH(library, operands[0], operands[1], operands[2], operands[3], operands[4], NULL, NULL, &failure),
                "launching through nkc");
        ours[round] = (now() - start) / BATCH;
    }
    must(cuda.wait(), "waiting");
    qsort(bare, ROUNDS, sizeof *bare, ascending);
    qsort(ours, ROUNDS, sizeof *ours, ascending);
    printf("%.1f %.1f\n", bare[ROUNDS / 2], ours[ROUNDS / 2]);
    nkc_kernels_close(library);
    return 0;
}
