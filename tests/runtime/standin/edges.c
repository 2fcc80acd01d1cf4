/* What guards.c leaves out: a kernel with a workspace and padded scales, a driver that fails, and what is left behind.
 * Built with -DLAUNCH=<function> -DTENSORS=<function> -DOTHER=<function of a kernel for another chip>, or with -DOPEN to
 * open and close alone. Prints one line per call; the test compares.
 */
#include "k.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static k_failure failure;
static k_library *library;
static void *driver;

static void show(const char *what, k_status status) {
    char text[256] = "";
    if (status) k_describe(&failure, text, sizeof text);
    printf("%s: %d %s\n", what, (int)status, text);
}

/* ISO C has no conversion between object and function pointers. */
static void call(void *function, const char *name) {
    void *address = dlsym(driver, name);
    memcpy(function, &address, sizeof address);
}

static void let_fail(const char *name, int code) {
    void (*fails)(const char *, int);
    call(&fails, "standin_fail");
    fails(name, code);
}

#ifndef SCALE_ROWS
#define SCALE_ROWS M
#endif

#ifndef OPEN
enum { M = 5, N = 256, K = 512, LEADING = 8 };

static k_tensor tensor(uintptr_t at, k_dtype dtype, int64_t rows, int64_t columns) {
    k_tensor made = { (void *)at, dtype, 0, 2, { rows, columns }, { columns, 1 } };
    return made;
}

static void launches(void) {
    const uintptr_t at_a = 0x10000000, at_b = 0x20000000;
    const k_fp8_e4m3 *a = (void *)at_a, *b = (void *)at_b;
    const float *sa = (void *)(uintptr_t)0x30000000, *sb = (void *)(uintptr_t)0x40000000;
    k_bf16 *out = (void *)(uintptr_t)0x50000000;
    void *own = (void *)(uintptr_t)0x60000000, *stream = (void *)(uintptr_t)0x51, *now = own;
    int (*current)(void **);
    call(&current, "cuCtxGetCurrent");
    show("own workspace", LAUNCH(library, a, b, sa, sb, out, M, NULL, stream, &failure));
    show("caller's workspace", LAUNCH(library, a, b, sa, sb, out, M, own, stream, &failure));
    show("misaligned workspace", LAUNCH(library, a, b, sa, sb, out, M, (char *)own + 128, stream, &failure));
    show("ends within", LAUNCH(library, a, b, sa, sb, (void *)(at_a - 16), M, NULL, stream, &failure));
    show("ends in the second half", LAUNCH(library, a, b, sa, sb, (void *)(at_b - M * N - 16), M, NULL, stream, &failure));
    show("ends before", LAUNCH(library, a, b, sa, sb, (void *)(at_a - 2 * M * N), M, NULL, stream, &failure));
    show("over padded scales", LAUNCH(library, a, b, sa, sb, (void *)((uintptr_t)sa + 3 * LEADING * 4), M, NULL, stream, &failure));
    show("another chip's", OTHER(library, a, b, sa, sb, out, NULL, stream, &failure));
    let_fail("cuLaunchKernel", 719);
    show("failing", LAUNCH(library, a, b, sa, sb, out, M, NULL, stream, &failure));
    let_fail("", 0);
    (void)current(&now);
    printf("context: %p\n", now ? now : (void *)1);

    k_tensor ta = tensor(at_a, K_FP8_E4M3, M, K), tb = tensor(at_b, K_FP8_E4M3, N, K), bad;
    k_tensor tsa = tensor(0x30000000, K_FP32, SCALE_ROWS, K / 128), tsb = tensor(0x40000000, K_FP32, N / 128, K / 128);
    k_tensor tout = tensor(0x50000000, K_BF16, M, N);
    tsa.strides[0] = 1, tsa.strides[1] = LEADING;
    show("padded", TENSORS(library, &ta, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = tsa, bad.strides[1] = M;
    show("not padded", TENSORS(library, &ta, &tb, &bad, &tsb, &tout, NULL, stream, &failure));
    ta.shape[0] = tsa.shape[0] = tout.shape[0] = 1, tsa.strides[1] = 4;
    ta.strides[0] = tout.strides[0] = 3, tsa.strides[0] = 3;
    show("one row, whatever its stride", TENSORS(library, &ta, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    ta.shape[0] = tsa.shape[0] = tout.shape[0] = 0, ta.strides[1] = 7, tsa.strides[1] = 0;
    show("no rows, whatever their strides", TENSORS(library, &ta, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
}
#endif

int main(int argc, char **argv) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 2; i + 1 < argc; i += 2) {
        int code = 0;
        sscanf(argv[i + 1], "%d", &code);
        let_fail(argv[i], code);
    }
    k_status opened = k_open(0, argc > 1 ? argv[1] : NULL, &library, &failure);
    show("open", opened);
#ifndef OPEN
    if (!opened) launches();
#endif
    k_close(library);
    int (*live)(void);
    call(&live, "standin_live");
    printf("left behind: %d\n", live());
    return 0;
}
